"""Lines → attempts: a restart loop is split, earliest first; what is no evidence is set aside."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ddtool.crash import events, scope
from ddtool.crash.model import Attempt, Line
from ddtool.crash.tracebacks import tracebacks

_LOADED = ("pool", "draft_load", "capture")


def attempts(lines: Sequence[Line]) -> list[Attempt]:
    """Every start of the service that the lines show, earliest first; none only if there are no lines.

    `Attempt.lines` has no lines of other units, other writers, kernel lines about other processes, or logged
    requests and answers: those are in `Attempt.aside` and are no evidence. The words of the service manager about
    a whole loop (`start-limit-hit`) stay with its last attempt.
    """
    kept, aside = scope.divide(_ranked(lines))
    parts = list(_split(kept)) or ([[]] if lines else [])
    borders = [part[0].number for part in parts[1:]]
    found = []
    taken = 0
    for index, part in enumerate(parts):
        upto = (
            bisect_left(aside, borders[index], key=lambda line: line.number) if index < len(borders) else None
        )
        found.append(_attempt(part, aside[taken:upto]))
        taken = upto if upto is not None else taken
    return found


def _ranked(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines, with the rank of their process where pids tell the ranks apart.

    They do if each of several ranks has a pid of its own; in the log of a container, or of `tee`, one pid stands
    before the lines of all.
    """
    ranks: dict[int, set[int]] = {}
    for line in lines:
        if line.source == "unit" and line.pid is not None and line.rank is not None:
            ranks.setdefault(line.pid, set()).add(line.rank)
    of_pid = {pid: next(iter(found)) for pid, found in ranks.items() if len(found) == 1}
    if len(of_pid) < 2 or len(of_pid) < len(ranks):
        return lines
    return [
        replace(line, rank=of_pid[line.pid]) if line.rank is None and line.pid in of_pid else line
        for line in lines
    ]


@dataclass(slots=True)
class _State:
    """What the attempt so far has shown."""

    lines: list[Line] = field(default_factory=list)
    spoke: bool = False  # the program or its end is in it, not only the manager's announcement
    args: bool = False
    starting: bool = False
    moved: bool = False  # a phase after the arguments
    ended: bool = False
    dead: bool = False  # nothing of its control group is left
    restarts: bool = False
    pids: set[int] = field(default_factory=set)

    def take(self, line: Line) -> None:
        self.lines.append(line)
        if line.source == "pid1":
            self.ended = self.ended or events.is_end(line)
            self.dead = self.dead or events.DEAD.match(line.text) is not None
            self.starting = self.starting or events.STARTING.match(line.text) is not None
            self.restarts = self.restarts or (self.spoke and events.RESTARTS.match(line.text) is not None)
            self.spoke = self.spoke or self.ended
        elif line.source == "unit":
            phase = events.phase_of(line)
            self.spoke = True
            self.args = self.args or (phase == "args" and line.rank is None)
            self.moved = self.moved or phase not in (None, "args")
            self.ended = self.ended or events.is_end(line)
            if line.pid is not None:
                self.pids.add(line.pid)

    def is_over_at(self, line: Line) -> bool:
        """Whether `line` belongs to the next attempt."""
        if not self.spoke or events.is_afterwards(line):
            return False
        if self.restarts or events.BOOT.match(line.text):
            return True
        if line.source == "pid1" and events.STARTS.match(line.text):
            return self.ended or not self.starting or events.STARTING.match(line.text) is not None
        if line.source != "unit":
            return False
        if self.dead and line.pid is not None and self.pids and line.pid not in self.pids:
            return True
        return (
            self.args and (self.moved or self.ended) and line.rank is None and events.phase_of(line) == "args"
        )


def _split(lines: Sequence[Line]) -> Iterator[list[Line]]:
    state = _State()
    for line in lines:
        if state.is_over_at(line):
            yield state.lines
            state = _State()
        state.take(line)
    if state.lines:
        yield state.lines


def _attempt(lines: list[Line], aside: list[Line]) -> Attempt:
    return Attempt(
        lines=lines,
        tracebacks=tracebacks(lines),
        phases=_phases(lines),
        end=next((line for line in lines if events.is_end(line)), None),
        last_good=_last_good(lines),
        aside=aside,
    )


def _last_good(lines: Sequence[Line]) -> int | None:
    """A batch line shows that the batches before it went well, the last prefill line shows nothing."""
    last: int | None = None
    batch: int | None = None
    for line in lines:
        if events.is_good(line):
            last = batch = line.number
        elif events.is_batch(line):
            last, batch = (batch if batch is not None else last), line.number
    return last


def _phases(lines: Sequence[Line]) -> dict[int | None, list[tuple[int, str]]]:
    reached: dict[int | None, list[tuple[int, str]]] = {}
    serving = False
    for line in lines:
        phase = "serving" if events.is_good(line) else events.phase_of(line)
        if phase == "serving" and not serving:
            serving = True
            reached.setdefault(line.rank, [])
            for steps in reached.values():  # it serves only when every rank is ready
                steps.append((line.number, phase))
        elif phase and not serving:
            steps = reached.setdefault(line.rank, [])
            if phase in ("init", "load") and any(step[1] in _LOADED for step in steps):
                phase = "draft_load"
            if not steps or steps[-1][1] != phase:
                steps.append((line.number, phase))
    over = next((line.number for line in lines if line.source == "pid1" and events.is_end(line)), None)
    if over is not None:
        for steps in reached.values():
            steps.append((over, "ended"))
    return reached
