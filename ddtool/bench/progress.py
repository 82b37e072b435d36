"""Where a run stands: passes done, and the time left as measured passes and starts tell it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from ddtool.bench.passes import Pass, Visit


class Progress:
    """`start_s`: how long one start of a server is expected to take; 0 where none starts."""

    def __init__(self, visits: Sequence[Visit], start_s: float, done: int = 0) -> None:
        self._left: list[Pass] = [one for visit in visits for one in visit.passes]
        self._starts = len(visits)
        self._start_s = start_s
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self._done = done
        self.of = done + len(self._left)

    def started(self, seconds: float | None = None) -> None:
        """A server answers; `seconds`: how long that took."""
        self._starts = max(0, self._starts - 1)
        if seconds:
            self._start_s = seconds

    def ended(self, ident: str, seconds: float) -> None:
        over = next((one for one in self._left if one.ident == ident), None)
        if over is not None:
            self._left.remove(over)
            self._done += 1
            self._seconds.setdefault((over.arm, over.cell), []).append(seconds)

    @property
    def done(self) -> int:
        return self._done

    @property
    def left_s(self) -> float | None:
        """None before the first pass has ended. A cell that this arm has not run yet takes as long as it took others;
        one that nobody has run, as long as the average pass."""
        measured = [value for values in self._seconds.values() for value in values]
        if not measured:
            return None
        left = Counter((one.arm, one.cell) for one in self._left)
        passes = sum(
            count * self._expected(arm, cell, fmean(measured)) for (arm, cell), count in left.items()
        )
        return passes + self._starts * self._start_s

    def _expected(self, arm: str, cell: str, average: float) -> float:
        own = self._seconds.get((arm, cell))
        others = [value for (_, of), values in self._seconds.items() if of == cell for value in values]
        return fmean(own or others or [average])
