"""The arm to run: the best, if it beats the chain by more than is uncertain. The chain is the simpler system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median, stdev

from ddtool.bench.tune.predict import Load, Predictor
from ddtool.bench.tune.trees import CHAIN, Shape

CLOSE = 0.03  # a tree that gains this much is not given up for being uncertain: what is lost stays below it
EQUAL = 0.005  # what no prediction can tell apart
NEIGHBOUR = 1.4  # factor between the budgets that a recommendation is tried against
T95 = {
    1: 12.7,
    2: 4.3,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
}  # by degrees of freedom


@dataclass(frozen=True)
class Choice:
    """An arm for a load. best: the best tree; gain: of it over the chain, with what is uncertain about it."""

    shape: Shape
    best: Shape
    gain: float
    error: float
    why: str

    @property
    def is_chain(self) -> bool:
        return self.shape.is_chain


def candidates(block: int, most: int, topks: Sequence[int]) -> list[Shape]:
    """Every tree between a chain's size and `most` nodes, smaller ones first. topks: the usual one first."""
    return [Shape(budget, topk) for topk in topks for budget in range(block - 1, most + 1)]


def predicted(predictor: Predictor, load: Load, shapes: Sequence[Shape]) -> Choice:
    """From the prediction alone. Of trees that are all but equal, the first of `shapes`: see `candidates`."""
    rates = {shape: predictor.rate(shape, load) for shape in shapes}
    best = next(shape for shape in shapes if rates[shape] >= (1 - EQUAL) * max(rates.values()))
    gain, error = predictor.gain(best, load), predictor.error(best, load)
    return choose(best, gain, error, "predicted")


def choose(best: Shape, gain: float, error: float, how: str) -> Choice:
    """gain: of the best tree over the chain; error: how far it may be off. how: `predicted` or `measured`."""
    tree = f"budget {best.budget}, top-k {best.topk}"
    told = f"{how} {gain:+.1%} over the chain, ±{error:.1%}"
    if gain > min(error, CLOSE):
        unsure = "" if gain > error else "; not certain, so measure again with more repeats"
        return Choice(best, best, gain, error, f"use the tree: {tree} is {told}{unsure}")
    if gain <= 0:
        reason = f"no tree is faster here; the best, {tree}, is {told}"
    else:
        reason = f"the best tree, {tree}, is {told}: not more than is uncertain"
    return Choice(CHAIN, best, gain, error, f"use the chain: {reason}")


def neighbours(shape: Shape, block: int, most: int) -> list[Shape]:
    """One smaller and one larger tree, or two on one side at the ends of the range."""
    low, high = round(shape.budget / NEIGHBOUR), round(shape.budget * NEIGHBOUR)
    around = [low, high, round(low / NEIGHBOUR), round(high * NEIGHBOUR)]
    fitting = [budget for budget in around if block - 1 <= budget <= most and budget != shape.budget]
    return [Shape(budget, shape.topk) for budget in sorted(dict.fromkeys(fitting[:2]))]


def measured(rates: Mapping[Shape, Sequence[float]]) -> Choice:
    """The final word: from passes of the chain and of trees, the n-th of each measured next to each other.

    Raises KeyError without the chain, ValueError without a tree.
    """
    chain = rates[CHAIN]
    best = max((shape for shape in rates if not shape.is_chain), key=lambda shape: median(rates[shape]))
    ratios = [tree / base for tree, base in zip(rates[best], chain, strict=False)]
    return choose(best, median(ratios) - 1, half_width(ratios), "measured")


def half_width(ratios: Sequence[float]) -> float:
    """Of the 95 % interval of their mean; 1.0 from a single one, which says nothing about the next."""
    if len(ratios) < 2:
        return 1.0
    t = T95.get(len(ratios) - 1, 2.1)
    return t * stdev(ratios) / sqrt(len(ratios)) / fmean(ratios)
