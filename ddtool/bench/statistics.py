"""What repeats can tell: a middle, a ratio with an interval that keeps its promise at few repeats, and stability. Pure.

Intervals are Student's, on the logarithms of ratios. The usual bootstrap is not used: at 5 pairs its 95 % interval
holds the truth 80 to 90 times in 100 (tests/unit/test_bench_statistics.py). Ranks alone cannot give 95 % at 5 pairs
either: the smallest and largest of them enclose the median in 93.75 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, exp, fsum, lgamma, log, log1p, sqrt
from statistics import fmean, median, stdev
from typing import Any

LEVEL = 0.95
MIN_PAIRS = (
    5  # with fewer, no interval is said: nobody can see whether the spread of 2 to 4 values is typical
)
STABLE = 0.10  # (largest - smallest) / median of repeats
DRIFT = 0.02  # a trend smaller than this is not worth a word
CHANCE = 0.05  # a trend, or a difference between starts, rarer than this by chance is called one


@dataclass(frozen=True)
class Ratio:
    """low, high: the 95 % interval; None where `pairs` are too few to have one.

    starts_differ: the ratio depends on which server start it was measured in, more than repeats explain; then the
    interval, which knows these starts alone, is too narrow for the next one.
    """

    ratio: float
    low: float | None
    high: float | None
    pairs: int
    starts_differ: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "ratio": round(self.ratio, 4),
            "low": None if self.low is None else round(self.low, 4),
            "high": None if self.high is None else round(self.high, 4),
            "pairs": self.pairs,
        }


@dataclass(frozen=True)
class Stability:
    """spread: (largest - smallest) / median. drift: later half over earlier half, less 1; None if it may be chance."""

    spread: float | None
    drift: float | None

    @property
    def stable(self) -> bool:
        """False for fewer than 3 values as well: nothing speaks for it."""
        return self.spread is not None and self.spread <= STABLE and self.drift is None


def paired_ratio(
    ours: Sequence[float], base: Sequence[float], starts: Sequence[int], picked_from: int = 1
) -> Ratio:
    """The geometric mean of the pairs' ratios.

    ours, base: positive, the i-th of both taken in the same repeat. starts: the server start of each pair; from 5
    starts on the interval is over starts, because repeats of one start know nothing of the next. picked_from: how many
    arms `ours` was the best of, by these very pairs; the interval holds for all of them together (Bonferroni).

    Raises ValueError when there are no pairs, or a value is not positive.
    """
    if not ours or len(ours) != len(base) or min(*ours, *base) <= 0:
        raise ValueError("ratios need pairs of positive values")
    logs = [log(a) - log(b) for a, b in zip(ours, base, strict=True)]
    by_start: dict[int, list[float]] = {}
    for start, value in zip(starts, logs, strict=True):
        by_start.setdefault(start, []).append(value)
    units = [fmean(values) for values in by_start.values()] if len(by_start) >= MIN_PAIRS else logs
    middle = fmean(units)
    if len(units) < MIN_PAIRS:
        return Ratio(exp(middle), None, None, len(logs))
    level = 1 - (1 - LEVEL) / picked_from
    reach = student(len(units) - 1, level) * stdev(units) / sqrt(len(units))
    differ = units is logs and groups_p([*by_start.values()]) < CHANCE
    return Ratio(exp(middle), exp(middle - reach), exp(middle + reach), len(logs), differ)


def unpaired_ratio(ours: Sequence[float], base: Sequence[float]) -> Ratio:
    """The same between runs, whose repeats have nothing to do with each other (Welch). pairs: the fewer of both."""
    if not ours or not base or min(*ours, *base) <= 0:
        raise ValueError("ratios need positive values on both sides")
    logs, others = [log(value) for value in ours], [log(value) for value in base]
    middle, fewer = fmean(logs) - fmean(others), min(len(logs), len(others))
    if fewer < MIN_PAIRS:
        return Ratio(exp(middle), None, None, fewer)
    parts = [stdev(side) ** 2 / len(side) for side in (logs, others)]
    error = sum(parts)
    if error == 0:
        return Ratio(exp(middle), exp(middle), exp(middle), fewer)
    freedom = error**2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (logs, others), strict=True)
    )
    reach = student(freedom) * sqrt(error)
    return Ratio(exp(middle), exp(middle - reach), exp(middle + reach), fewer)


def stability(values: Sequence[float]) -> Stability:
    """values: of the repeats of one arm, in the order they ran."""
    if len(values) < 3 or median(values) <= 0:
        return Stability(None, None)
    spread = (max(values) - min(values)) / median(values)
    half = len(values) // 2
    change = median(values[-half:]) / median(values[:half]) - 1 if median(values[:half]) > 0 else 0.0
    drifts = abs(change) > DRIFT and trend_p(values) < CHANCE
    return Stability(spread, change if drifts else None)


def trend_p(values: Sequence[float]) -> float:
    """Mann-Kendall, exact: how often a random order would rise or fall as steadily as `values` do. Ties count half."""
    n = len(values)
    pairs = [(a, b) for i, a in enumerate(values) for b in values[i + 1 :]]
    falls = fsum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
    extreme = min(falls, len(pairs) - falls)
    ways = _orders_by_inversions(n)
    return min(1.0, 2 * sum(ways[: int(extreme) + 1]) / sum(ways))


def groups_p(groups: Sequence[Sequence[float]]) -> float:
    """F-test: how often groups of one common mean would differ as much. 1 where there is nothing to compare."""
    values = [value for group in groups for value in group]
    between, within = len(groups) - 1, len(values) - len(groups)
    if between < 1 or within < 1:
        return 1.0
    middle = fmean(values)
    explained = fsum(len(group) * (fmean(group) - middle) ** 2 for group in groups)
    left = fsum((value - fmean(group)) ** 2 for group in groups for value in group)
    if explained + left == 0:
        return 1.0
    return _beta(left / (left + explained), within / 2, between / 2)


def surplus_p(hits: int, of: int, base_hits: int, base_of: int) -> float:
    """Fisher's exact test, one-sided: how often chance would give the first side as many of all hits, or more."""
    total = hits + base_hits
    ways = sum(comb(of, k) * comb(base_of, total - k) for k in range(hits, min(of, total) + 1))
    return ways / comb(of + base_of, total)


@cache
def student(freedom: float, level: float = LEVEL) -> float:
    """Student's t: |t| is below it in `level` of all cases. 2.776 for 4 degrees of freedom."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: float) -> float:
    """P(|T| < t)."""
    return 1 - _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, which Student's t and F are made of."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float, tiny: float = 1e-300) -> float:
    """Lentz's evaluation; converges fast for x below (a + 1) / (a + b + 2)."""
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d, c = 1 / (1 + term * d or tiny), 1 + term / c or tiny
            step = c * d
            value *= step
        if abs(step - 1) < 1e-15:
            break
    return value


@cache
def _orders_by_inversions(n: int) -> list[int]:
    """How many orders of n things have 0, 1, 2, … pairs the wrong way round; n! in all."""
    ways = [1]
    for size in range(2, n + 1):
        longer, window = [], 0  # the new thing stands before 0 to size - 1 of the others: a sum over a window
        for inversions in range(len(ways) + size - 1):
            window += ways[inversions] if inversions < len(ways) else 0
            window -= ways[inversions - size] if inversions >= size else 0
            longer.append(window)
        ways = longer
    return ways
