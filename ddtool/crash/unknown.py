"""What to show when nothing decides: the earliest suspicious lines, where each rank stood, what to collect next."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddtool.crash.judge import Finding
from ddtool.crash.model import Line
from ddtool.crash.tracebacks import innermost

SUSPICIOUS_MOST = 5
_SUSPICIOUS = re.compile(
    r"error|exception|fail|fatal|abort|timed? ?out|killed|denied|unable|cannot|invalid|corrupt|lost|dead|assert|"
    r"NVRM|panic",
    re.I,
)


def suspicious(finding: Finding) -> list[Line]:
    """The earliest lines that sound like trouble and are not known noise or messengers."""
    known = {hit.number for hit in finding.hits if hit.signature.role != "root"}
    found = (
        line
        for line in finding.scene.lines
        if line.number not in known and line.level != "debug" and _SUSPICIOUS.search(line.text[:500])
    )
    return [line for _, line in zip(range(SUSPICIOUS_MOST), found, strict=False)]


def frames(finding: Finding) -> Iterator[tuple[int | None, str]]:
    """Each rank's innermost frame."""
    for rank, frame in innermost(finding.scene.attempt.tracebacks).items():
        yield rank, f"{frame.path}:{frame.lineno} in {frame.function}"


def to_collect(finding: Finding) -> Iterator[str]:
    """What is not in view and would tell most, by what the log does and does not hold."""
    lines = finding.scene.lines
    if not any(line.source == "kernel" for line in lines):
        yield "the kernel log of that time (journalctl -k): NVRM, Xid and OOM lines"
    if not any("server_args=" in line.text for line in lines):
        yield "the log from the start of the attempt: it begins later here"
    if not finding.scene.attempt.tracebacks:
        yield "a traceback: the log of every rank, not only rank 0"
    if any(hit.signature.role == "cascade" for hit in finding.hits):
        yield "the lines before the first exit; a core or PYTHONFAULTHANDLER=1 if there are none"
