"""The arm to run: the best, if it beats the chain by more than is uncertain. The chain is the simpler system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ddtool.bench.statistics import MIN_PAIRS, paired_ratio
from ddtool.bench.tune.predict import Load, Predictor
from ddtool.bench.tune.trees import CHAIN, Shape

CLOSE = 0.03  # a tree that gains this much is not given up for being uncertain: what is lost stays below it
EQUAL = 0.005  # what no prediction can tell apart
NEIGHBOUR = 1.4  # factor between the budgets that a recommendation is tried against
Repeat = tuple[int, int]  # the server's start, and the repeat within it
UNKNOWN = 1.0  # the error where too few pairs were measured to have one


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
    return choose(best, gain, error, "predicted", f"±{error:.1%}")


def choose(best: Shape, gain: float, error: float, how: str, about: str) -> Choice:
    """gain: of the best tree over the chain; error: how far it may be off, which `about` says in words.

    how: `predicted` or `measured`.
    """
    tree = f"budget {best.budget}, top-k {best.topk}"
    told = f"{how} {gain:+.1%} over the chain, {about}"
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


def measured(rates: Mapping[Shape, Mapping[Repeat, float]]) -> Choice:
    """The final word: from passes of the chain and of trees, by repeat, since only those of one repeat are compared.

    Raises KeyError without the chain, ValueError without a tree, or without a repeat in common.
    """
    best = max(
        (shape for shape in rates if not shape.is_chain), key=lambda shape: median(rates[shape].values())
    )
    shared = sorted(rates[best].keys() & rates[CHAIN].keys())
    ratio = paired_ratio(
        [rates[best][one] for one in shared],
        [rates[CHAIN][one] for one in shared],
        [start for start, _ in shared],
        picked_from=len(rates) - 1,
    )
    if ratio.low is None or ratio.high is None:
        passes = f"{ratio.pairs} pass{'es' if ratio.pairs > 1 else ''} of each"
        about = f"from {passes}, and it takes {MIN_PAIRS} to say how surely"
        return choose(best, ratio.ratio - 1, UNKNOWN, "measured", about)
    error = (ratio.high - ratio.low) / 2
    once = len({start for start, _ in shared}) == 1
    about = f"±{error:.1%}" + (" within one server start" if once else "")
    about += " and more between server starts" if ratio.starts_differ else ""
    return choose(best, ratio.ratio - 1, error, "measured", about)
