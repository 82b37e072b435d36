"""What the stages of a verdict hand to each other: lines, tracebacks, attempts, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Source = Literal["unit", "pid1", "kernel"]
Worker = Literal["draft", "target"]

# In the order of a start. `serving` begins with "fired up" or a batch line, `ended` with the service manager's word.
PHASES = ("args", "init", "load", "pool", "draft_load", "capture", "serving", "ended")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, cleaned: prefix, colours and overwritten progress are gone."""

    number: int  # 1-based line of the input split at "\n"
    text: str
    source: Source = "unit"
    unix_us: int | None = None
    pid: int | None = None
    rank: int | None = None
    level: str | None = None
    ident: str | None = None  # who wrote it, as the prefix says: a syslog identifier, a container


@dataclass(frozen=True, slots=True)
class Frame:
    path: str
    lineno: int
    function: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Traceback:
    """One Python exception of one rank, put together again if several ranks printed at once."""

    lines: tuple[Line, ...]
    frames: tuple[Frame, ...]  # outermost first
    error: Line  # the line that names the exception
    kind: str  # "RuntimeError", "torch.OutOfMemoryError"
    message: str  # every line of it
    cause: Traceback | None = None  # the block above "direct cause of" or "During handling of"
    rank: int | None = None

    @property
    def root(self) -> Traceback:
        """The earliest exception of the chain."""
        return self.cause.root if self.cause else self


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the service, as far as the input shows it."""

    lines: Sequence[Line]
    tracebacks: tuple[Traceback, ...]
    phases: Mapping[
        int | None, Sequence[tuple[int, str]]
    ]  # rank → (line number, phase) in order; None: no rank said
    end: Line | None = None  # the first word of the service manager, or of the parent, that it is over
    last_good: int | None = None  # number of the last line that shows a batch or a request that succeeded
    aside: Sequence[Line] = ()  # no evidence: lines of other units and processes, text of logged requests

    @property
    def served(self) -> bool:
        return self.last_good is not None

    def phase_at(self, number: int, rank: int | None = None) -> str:
        """The phase that `rank` (anybody, if it said nothing) had reached at line `number`; `args` before the first."""
        own = None if rank is None else self.phases.get(rank)
        reached = own or [step for steps in self.phases.values() for step in steps]
        before = [step for step in reached if step[0] <= number]
        return max(before)[1] if before else "args"


@dataclass(frozen=True, slots=True)
class FirstCause:
    line: int
    text: str
    rank: int | None = None
    worker: Worker | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ddtool.crash.classify/1` (the field `schema` is added where it is printed)."""

    category: str  # a leaf of the taxonomy, `no_crash` or `unknown`
    subcode: str | None
    cause: str  # one sentence
    first_cause: FirstCause | None
    cascade: tuple[FirstCause, ...]
    evidence: tuple[FirstCause, ...]
    missing: tuple[str, ...]
    remedy: str
    next_command: str
    confidence: Literal["high", "medium", "low"]
    fingerprint: str | None
    ranks: tuple[Mapping[str, Any], ...] = ()  # {rank, phase, line, text, first}: what each rank said

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
