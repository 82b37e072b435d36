"""A log → verdict: the one entry, for pastes, journals, bundles and live units alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from ddtool.crash import source
from ddtool.crash.attempts import attempts
from ddtool.crash.judge import judge
from ddtool.crash.model import Line, Verdict
from ddtool.crash.numbers import Numbers
from ddtool.crash.signatures import Catalogue, catalogue
from ddtool.crash.verdict import healthy, of_finding


@dataclass(frozen=True)
class Context:
    """What is known beside the log."""

    numbers: Numbers = field(default_factory=Numbers)
    diagnostics: Sequence[str] = ()  # names of the diagnostics that were enabled for this run
    drift: Sequence[str] = ()  # files of the installation that are not as released, one sentence each
    outcome: str | None = None  # of a `diag run`: fired, crashed elsewhere, not fired, hung, ...
    hang_phase: str | None = None  # the phase in which a deadline passed, if somebody watched


def classify(stream: BinaryIO, context: Context | None = None) -> Verdict:
    """The verdict on a log in any format that `source` reads. Nothing in the input makes this fail."""
    return classify_lines(source.lines(stream, catalogue().patterns()), context)


def classify_lines(
    lines: Iterable[Line], context: Context | None = None, signatures: Catalogue | None = None
) -> Verdict:
    finding = judge(attempts(list(lines)), signatures or catalogue())
    known = context or Context()
    if finding is None or not (finding.failed or known.hang_phase):
        return healthy(finding)
    return of_finding(finding, known, signatures or catalogue())
