"""What a tuning run found: predictions, measurements, and the choice that follows from both. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ddtool.bench.passes import Cell, Design
from ddtool.bench.tune import recommend
from ddtool.bench.tune.cost import Experts
from ddtool.bench.tune.predict import Load, Predictor
from ddtool.bench.tune.recommend import Choice
from ddtool.bench.tune.rounds import CONCURRENCY, Timing, arm_of
from ddtool.bench.tune.trees import CHAIN, Shape


@dataclass(frozen=True)
class Found:
    """What an answer is made of. timings: of the fit; verified: of the run that judged the prediction, or none.

    traced: the workload whose texts the trace has, as timings name it. topk: of arms whose name has none.
    lost: what the files no longer have, in words.
    """

    predictor: Predictor
    timings: Sequence[Timing]
    verified: Sequence[Timing]
    traced: str
    topk: int
    experts: Experts | None = None
    lost: Sequence[str] = ()

    @property
    def loads(self) -> list[Load]:
        return self.predictor.loads

    @property
    def main(self) -> list[Load]:
        """The loads whose texts are the trace's."""
        return [load for load in self.loads if load.workload == self.traced]

    @property
    def widest(self) -> Load:
        """The one with the most prompts, which the traced pass had, too."""
        sizes = {one: max(len(t.tokens) for t in self.timings if is_of(t, one)) for one in self.main}
        return max(self.main, key=lambda load: (sizes[load], load.concurrency))

    @property
    def is_sampled(self) -> bool:
        """Whether texts differ from run to run: the temperature stands in the workload's name."""
        return re.search(r"-t[0-9.]+$", self.traced) is not None

    @property
    def shapes(self) -> list[Shape]:
        """Every tree that may be recommended."""
        acceptance = self.predictor.acceptance
        topks = dict.fromkeys([min(self.topk, acceptance.topk), max(1, acceptance.topk // 2)])
        return recommend.candidates(acceptance.block, acceptance.most, list(topks))

    def name(self, shape: Shape) -> str:
        return arm_of(shape, self.topk)

    def context(self, load: Load) -> int:
        return round(median(one.context for one in self.timings if is_of(one, load)))

    def rates(self, timings: Sequence[Timing], load: Load) -> dict[Shape, list[float]]:
        """Measured tokens a second, pass by pass."""
        found: dict[Shape, list[float]] = {}
        for one in timings:
            if one.shape is not None and is_of(one, load):
                found.setdefault(one.shape, []).append(one.tok_s)
        return found

    def predicted(self, load: Load) -> Choice:
        """What to use for a load if nothing but the fit is known."""
        return recommend.predicted(self.predictor, load, self.shapes)

    def is_traced(self, shape: Shape) -> bool:
        """Whether the trace can judge it."""
        acceptance = self.predictor.acceptance
        return shape.budget <= acceptance.most and shape.topk <= acceptance.topk


def speeds(found: Found, cells: Sequence[Cell]) -> dict[str, float]:
    """tok/s of one request in each of these cells, over all arms of the fit."""
    by: dict[str, list[float]] = {}
    for cell in cells:
        workload = CONCURRENCY.sub("", cell.key, count=1)
        mine = [t for t in found.timings if (t.workload, t.concurrency) == (workload, cell.concurrency)]
        by[cell.key] = [one.tok_s / one.concurrency for one in mine]
    return {key: median(values) for key, values in by.items() if values}


def is_of(timing: Timing, load: Load) -> bool:
    return (timing.workload, timing.concurrency) == (load.workload, load.concurrency)


def main_load(found: Found, design: Design) -> Load:
    """What the recommendation is for: the first concurrency that was asked for."""
    first = design.cells[0].concurrency
    return next((load for load in found.main if load.concurrency == first), found.main[0])


def choice(found: Found, load: Load) -> Choice:
    """What to use for a load: as it was verified, or as it is predicted where it was not."""
    rates: dict[Shape, dict[recommend.Repeat, float]] = {}
    for one in found.verified:
        if one.shape is not None and is_of(one, load):
            rates.setdefault(one.shape, {})[one.visit, one.repeat] = one.tok_s
    beside = {shape: passes for shape, passes in rates.items() if passes.keys() & rates.get(CHAIN, {}).keys()}
    if len(beside) > 1:  # the chain, and trees that were run in the same repeats
        return recommend.measured(beside)
    return found.predicted(load)


def tried(found: Found, load: Load) -> list[Shape]:
    """What a verification runs: the chain, the best tree of every load by prediction and by the fit's own passes, and
    the neighbours of `load`'s. A cost curve is smooth and a GPU is not: the fit's fastest gets its rematch."""
    best = [found.predicted(one).best for one in [load, *found.main]]
    acceptance = found.predictor.acceptance
    around = recommend.neighbours(best[0], acceptance.block, acceptance.most)
    return list(dict.fromkeys([CHAIN, *best, *around, *(fastest(found, one) for one in found.main)]))


def fastest(found: Found, load: Load) -> Shape:
    """The tree with the highest median of tok/s among those that were run for the fit."""
    rates = {shape: median(values) for shape, values in found.rates(found.timings, load).items()}
    return max((shape for shape in rates if not shape.is_chain), key=lambda shape: rates[shape])
