"""The engine's trees in plain Python: which of a draft's paths are verified at which budget.

A best-first tree of a smaller budget is the beginning of a larger one. So one heap for a draft says for all budgets at
once how far they would have come along a known text.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Ranks = tuple[int, ...]

FRACTION_BITS = (
    28  # of a cost, as in the engine: whole numbers, so that a tree depends on no order of additions
)
CAP_NATS = 64.0


@dataclass(frozen=True, order=True)
class Shape:
    """What is verified: the best `budget` paths of `topk` choices a position; both 0: the chain of first choices."""

    budget: int = 0
    topk: int = 0

    @property
    def is_chain(self) -> bool:
        return self.budget == 0


CHAIN = Shape()


@dataclass(frozen=True)
class Draft:
    """What the drafter said from one root: [L][K] log-probabilities in falling order, and their tokens."""

    logprobs: Sequence[Sequence[float]]
    ids: Sequence[Sequence[int]]


def exact_costs(logprobs: Sequence[Sequence[float]]) -> list[list[int]]:
    """Log-probabilities → costs in units of 2**-28 nats, from 0 to 64 nats; NaN costs as much as the least likely."""
    return [[_cost(value) for value in row] for row in logprobs]


def _cost(logprob: float) -> int:
    nats = CAP_NATS if math.isnan(logprob) else min(max(-logprob, 0.0), CAP_NATS)
    return math.floor(nats * (1 << FRACTION_BITS))


def best_first(costs: Sequence[Sequence[int]], budget: int) -> Iterable[Ranks]:
    """The nodes of the tree, best first, as 0-based rank tuples; ties go to the shallower, then to the better ranks.

    costs: [L][K]. Fewer than `budget` nodes where no more exist.
    """
    heap: list[tuple[int, int, Ranks]] = [(costs[0][0], 1, (0,))]
    for _ in range(budget):
        if not heap:
            return
        cost, depth, ranks = heapq.heappop(heap)
        yield ranks
        row, rank = costs[depth - 1], ranks[-1]
        if rank + 1 < len(row):
            heapq.heappush(heap, (cost - row[rank] + row[rank + 1], depth, (*ranks[:-1], rank + 1)))
        if depth < len(costs):
            heapq.heappush(heap, (cost + costs[depth][0], depth + 1, (*ranks, 0)))


def needs(draft: Draft, truth: Sequence[int], topk: int, most: int) -> tuple[int, ...]:
    """The budgets from which on a tree takes 1, 2, … tokens of `truth`, the text after the root; none above `most`."""
    path: list[int] = []
    for row, token in zip(draft.ids, truth, strict=False):
        choices = list(row[:topk])
        if token not in choices:
            break
        path.append(choices.index(token))
    found: list[int] = []
    if path:
        costs = exact_costs([row[:topk] for row in draft.logprobs])
        for number, ranks in enumerate(best_first(costs, most), 1):
            if ranks == tuple(path[: len(found) + 1]):  # parents come before their children
                found.append(number)
                if len(found) == len(path):
                    break
    return tuple(found)


def chain_takes(draft: Draft, truth: Sequence[int]) -> int:
    """Tokens of `truth` that the drafter's first choices get right."""
    agree = [row[0] == token for row, token in zip(draft.ids, truth, strict=False)]
    return agree.index(False) if False in agree else len(agree)
