"""Tokens per second of an arm that was not run: its rounds from the trace, their cost from the curve.

    seconds = requests x overhead + rounds, played as the load runs them: so many requests at a time, the next when one
              is done, and a round that costs less as fewer are left

The overhead of a request (prefill, HTTP, others' prefills) is what the measured passes took beside their rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.cost import Curve, Experts, fit, interpolate
from ddtool.bench.tune.rounds import Timing, width_of
from ddtool.bench.tune.trees import CHAIN, Shape
from ddtool.errors import DdtoolError

UNKNOWN_ERROR = 0.1  # of a cost curve with too few widths to leave one out


@dataclass(frozen=True, order=True)
class Load:
    """What the server is asked to do: a workload, so many requests at a time."""

    workload: str
    concurrency: int


def play(rounds: Sequence[float], concurrency: int, round_s: Callable[[int], float]) -> float:
    """Seconds of decoding for requests of so many rounds, `concurrency` at a time. round_s: by how many are active."""
    waiting = list(reversed(rounds))
    active: list[float] = []
    seconds = 0.0
    while waiting or active:
        while waiting and len(active) < concurrency:
            active.append(waiting.pop())
        step = min(active)
        seconds += step * round_s(len(active))
        active = [left - step for left in active if left - step > 1e-9]
    return seconds


class Predictor:
    """What the passes of some arms and one trace say about all arms.

    timings: of the chain and of trees, over each load. Raises DdtoolError when too little was measured.
    """

    def __init__(
        self, timings: Iterable[Timing], acceptance: Acceptance, experts: Experts | None = None
    ) -> None:
        self.acceptance = acceptance
        self._timings = [timing for timing in timings if timing.shape is not None]
        self.costs = costs(self._timings)
        self.curves: dict[Load, Curve] = {
            load: fit(points, experts and replace(experts, requests=load.concurrency))
            for load, points in self.costs.items()
        }
        self._chain = {
            load: median(one.round_ms for one in found)
            for load, found in _by_load(self._timings, lambda shape: shape.is_chain).items()
        }
        if missing := sorted(load.workload for load in self.curves if load not in self._chain):
            raise DdtoolError(
                f"the chain has no whole pass over {missing[0]}, so nothing is known to be better than it",
                why="a pass with a request that failed says nothing about rounds",
                hint="ddtool bench --resume RUN measures it again, if it broke off; samples.jsonl has the errors",
            )
        self._overhead = {load: self._overhead_of(load) for load in self.loads}

    @property
    def loads(self) -> list[Load]:
        return sorted(self.curves)

    def round_ms(self, shape: Shape, load: Load, active: int | None = None) -> float:
        """Of a round with so many requests in it; by default as many as the load has.

        Fewer than were ever measured cost as much as the fewest that were.
        """
        here = [one for one in self.loads if one.workload == load.workload]
        by_size = {one.concurrency: self._full_round_ms(shape, one) for one in here}
        return interpolate(by_size, max(load.concurrency if active is None else active, min(by_size)))

    def rate(self, shape: Shape, load: Load) -> float:
        """Tokens per second of all requests together.

        The chain's as it was measured when the trace is not exact: it would be told too high (see acceptance).
        """
        if shape.is_chain and not self.acceptance.is_exact:
            return median(one.tok_s for one in self._timings if one.shape == CHAIN and _load(one) == load)
        sizes = self._sizes(load)
        rounds = self._rounds(shape, sizes)
        decoding = self._play(shape, load, rounds)
        return sum(sizes) / (decoding + len(sizes) * self._overhead[load])

    def replayed(self, one: Timing) -> float:
        """Tokens per second of a pass with the rounds that its requests took: what the cost model alone says of it."""
        if one.shape is None:
            raise ValueError(f"{one.arm} has no rounds of a tree or a chain")
        load = _load(one)
        seconds = self._play(one.shape, load, one.rounds) + len(one.rounds) * self._overhead[load]
        return sum(one.tokens) / seconds

    def gain(self, shape: Shape, load: Load) -> float:
        """Over the chain: 0.1 is 10 % more tokens a second."""
        return self.rate(shape, load) / self.rate(CHAIN, load) - 1

    def error(self, shape: Shape, load: Load) -> float:
        """Relative, of the gain: other prompts of this kind, and a width that the curve was not given."""
        cost = self.curves[load].error
        cost = UNKNOWN_ERROR if cost is None else cost
        if width_of(shape, self.acceptance.block) in self.costs[load]:
            cost = min(cost, self.spread(load))
        return math.hypot(self.acceptance.error(shape, CHAIN), cost)

    def spread(self, load: Load) -> float:
        """How far the curve misses the widths that it was given: relative, the mean."""
        curve, points = self.curves[load], self.costs[load]
        return sum(abs(curve.at(width) / ms - 1) for width, ms in points.items()) / len(points)

    def _full_round_ms(self, shape: Shape, load: Load) -> float:
        if shape.is_chain:
            return self._chain[load]
        return self.curves[load].at(width_of(shape, self.acceptance.block))

    def _play(self, shape: Shape, load: Load, rounds: Sequence[float]) -> float:
        return play(rounds, load.concurrency, cache(lambda active: self.round_ms(shape, load, active) / 1000))

    def _sizes(self, load: Load) -> tuple[int, ...]:
        """Tokens of the load's requests, as they were measured."""
        found = [timing for timing in self._timings if _load(timing) == load]
        return max((timing.tokens for timing in found), key=len)

    def _rounds(self, shape: Shape, sizes: Sequence[int]) -> list[float]:
        """As many as the traced texts need for as many tokens, one text after the other."""
        texts, rounds = self.acceptance.texts, self.acceptance.rounds(shape)
        return [
            rounds[index % len(texts)] / texts[index % len(texts)].rounds_end * max(size - 1, 0)
            for index, size in enumerate(sizes)
        ]

    def _overhead_of(self, load: Load) -> float:
        """Seconds a request, the median of the load's passes; their own rounds are known."""
        found = [
            (one.seconds - self._play(one.shape, load, one.rounds)) / len(one.rounds)
            for one in self._timings
            if _load(one) == load and one.shape is not None
        ]
        return max(0.0, median(found))


def _load(timing: Timing) -> Load:
    return Load(timing.workload, timing.concurrency)


def _by_load(timings: Iterable[Timing], wanted: Callable[[Shape], bool]) -> dict[Load, list[Timing]]:
    found: dict[Load, list[Timing]] = {}
    for timing in timings:
        if timing.shape is not None and wanted(timing.shape):
            found.setdefault(_load(timing), []).append(timing)
    return found


def costs(timings: Iterable[Timing]) -> dict[Load, Mapping[int, float]]:
    """Median milliseconds a round of trees, by width, for each load. Raises DdtoolError when no tree was measured."""
    found: dict[Load, Mapping[int, float]] = {}
    for load, some in _by_load(timings, lambda shape: not shape.is_chain).items():
        widths: dict[int, list[float]] = {}
        for one in some:
            if one.shape is not None:
                widths.setdefault(one.shape.budget + 1, []).append(one.round_ms)
        found[load] = {width: median(values) for width, values in sorted(widths.items())}
    if not found:
        raise DdtoolError(
            "no tree was measured in this run",
            why="the cost of a round is fitted to trees of several widths",
            hint="ddtool tune without --from runs them",
        )
    return found
