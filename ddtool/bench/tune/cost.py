"""What a round costs at any width, from the widths that were measured.

Several forms are tried; the one stays that best tells a width it was not given. Each is a sum of terms that never fall,
with factors that are not negative, so that a wider verify is never cheaper.

    line      a + b N                       memory-bound: weights are read once, activations per token
    ridge     a + b max(0, N - n)           free up to n tokens, then bound by arithmetic
    experts   a + b N + c D(N)              D: distinct experts that N tokens read
    steps     straight lines between medians, made monotone: for kernels that pad to tiles
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import fmean

from ddtool.bench.tune.experts import independent
from ddtool.errors import DdtoolError

Points = Mapping[int, float]  # ms by width
Term = Callable[[float], float]

# Errors that differ by less than this factor, or this much, are no reason for another form.
ALIKE, NOISE = 1.25, 0.002


@dataclass(frozen=True)
class Curve:
    """One fitted form. params: factors by their term; error: relative, of widths that were left out; None: too few."""

    model: str
    params: Mapping[str, float]
    error: float | None
    at: Callable[[float], float]


Maker = Callable[[Points], Curve]


@dataclass(frozen=True)
class Experts:
    """Of one layer of the target. measured: distinct ones by width, where SGLang's recorder was asked.

    requests: how many are in a forward; each has a tree of its own, and they choose independently of each other.
    """

    count: int
    chosen: int
    measured: Mapping[int, float] | None = None
    requests: int = 1

    def distinct(self, width: float) -> float:
        """Between measured widths a straight line; without them the bound of independent routing."""
        if self.measured:
            alone = interpolate({0: 0.0, 1: float(self.chosen), **self.measured}, width)
        else:
            alone = independent(width, self.count, self.chosen)
        return self.count * (1 - math.pow(1 - min(1.0, alone / self.count), self.requests))


def fit(points: Points, experts: Experts | None = None) -> Curve:
    """The curve of one load. Raises DdtoolError for fewer than two widths."""
    if len(points) < 2:
        raise DdtoolError(
            "a cost curve needs two widths at least",
            why=f"measured: {', '.join(map(str, points)) or 'none'}",
            hint="ddtool tune --widths 8,16,33,65",
        )
    make = best_form(forms(sorted(points), experts), points)
    return replace(make(points), error=left_out(make, points))


def best_form(makers: Mapping[str, Maker], points: Points) -> Maker:
    """The simplest of those that tell left-out widths about as well as the best.

    With three widths a line and the straight lines between them do that equally well; then what fits them is better.
    """
    scores: dict[str, tuple[float, float]] = {}
    for name, make in makers.items():
        error = left_out(make, points)
        if error is not None:
            scores[name] = round(error, 9), misses(make(points), points)
    if not scores:
        return makers["line"]
    best = min(scores, key=lambda name: scores[name])
    if len(points) == 3:
        return makers[best]
    allowed = max(ALIKE * scores[best][0], scores[best][0] + NOISE)
    return next(makers[name] for name in makers if scores[name][0] <= allowed)


def misses(curve: Curve, points: Points) -> float:
    """Mean relative distance of the curve to the points that it was made from."""
    return fmean(abs(curve.at(width) / ms - 1) for width, ms in points.items())


def forms(widths: Sequence[int], experts: Experts | None) -> dict[str, Maker]:
    """Makers of curves by name, the simplest first: it wins a tie."""
    one: Term = lambda _: 1.0  # noqa: E731
    width: Term = lambda tokens: tokens  # noqa: E731
    found: dict[str, Maker] = {"line": _maker("line", {"a": one, "b": width})}
    for knot in widths[1:-1]:
        found[f"ridge at {knot}"] = _maker(f"ridge at {knot}", {"a": one, "b": _beyond(knot)})
    if experts is not None:
        terms = {"a": one, "b": width, "c": experts.distinct}
        found["experts"] = _maker("experts", terms)
    found["steps"] = steps
    return found


def _beyond(knot: float) -> Term:
    return lambda tokens: max(0.0, tokens - knot)


def _maker(name: str, terms: Mapping[str, Term]) -> Maker:
    def make(points: Points) -> Curve:
        factors = least_squares(terms, points)

        def at(tokens: float) -> float:
            return sum(factors[term] * of(tokens) for term, of in terms.items())

        return Curve(name, factors, None, at)

    return make


def steps(points: Points) -> Curve:
    """Straight lines through the points, pooled where they fall; beyond them the last line goes on."""
    level = monotone(points)
    return Curve(
        "steps", {str(width): ms for width, ms in level.items()}, None, lambda n: interpolate(level, n)
    )


def left_out(make: Maker, points: Points) -> float | None:
    """Mean relative error at each inner width, told from the others; None without an inner one."""
    inner = sorted(points)[1:-1]
    if not inner:
        return None
    errors = []
    for width in inner:
        rest = {other: ms for other, ms in points.items() if other != width}
        errors.append(abs(make(rest).at(width) / points[width] - 1))
    return fmean(errors)


def least_squares(terms: Mapping[str, Term], points: Points) -> dict[str, float]:
    """Factors, none negative, with the least sum of squared relative errors. Terms that are of no use get 0.

    With as few terms as here every subset is tried, which finds the optimum without a solver.
    """
    best: tuple[float, dict[str, float]] | None = None
    names = list(terms)
    for size in range(1, min(len(names), len(points)) + 1):
        for chosen in combinations(names, size):
            rows = [[terms[name](width) / ms for name in chosen] for width, ms in points.items()]
            factors = solve_normal(rows)
            if factors is None or min(factors) < 0:
                continue
            error = sum((sum(f * x for f, x in zip(factors, row, strict=True)) - 1) ** 2 for row in rows)
            if best is None or error < best[0] - 1e-15:
                best = error, dict.fromkeys(names, 0.0) | dict(zip(chosen, factors, strict=True))
    assert best is not None, "the constant term alone always fits"
    return best[1]


def solve_normal(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """The factors for which `rows` come nearest to 1; None when they are not determined."""
    size = len(rows[0])
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(size)] + [sum(row[i] for row in rows)]
        for i in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) < 1e-12 * max(1.0, *(abs(value) for value in matrix[pivot])):
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[column], strict=True)]
    return [matrix[row][size] / matrix[row][row] for row in range(size)]


def monotone(points: Points) -> dict[int, float]:
    """The nearest values that never fall with the width: neighbours that do are averaged."""
    pools: list[tuple[list[int], float]] = []
    for width in sorted(points):
        widths, level = [width], points[width]
        while pools and pools[-1][1] > level:
            before, old = pools.pop()
            level = (old * len(before) + level * len(widths)) / (len(before) + len(widths))
            widths = before + widths
        pools.append((widths, level))
    return {width: level for widths, level in pools for width in widths}


def interpolate(points: Mapping[int, float], x: float) -> float:
    """On straight lines between the points, the outer ones extended; a single point is a constant."""
    xs = sorted(points)
    if len(xs) == 1:
        return points[xs[0]]
    low, high = next(((a, b) for a, b in pairwise(xs) if x <= b), (xs[-2], xs[-1]))
    return points[low] + (points[high] - points[low]) * (x - low) / (high - low)
