"""The paper's heap (arXiv 2604.12989, section 4), as the reference for trees. Plain Python, exact integers.

Used by tests/engine/core alone. It shares nothing with the engine but the definition of a cost: negated log-probability
in whole units of 2**-28, cut, never below 0 nor above 64 nats.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

Ranks = tuple[int, ...]


def exact_costs(log_probs: Sequence[Sequence[float]]) -> list[list[int]]:
    """[L][K] float32 log-probabilities → costs."""
    return [[math.floor(min(max(-value, 0.0), 64.0) * 2**28) for value in row] for row in log_probs]


def best_first(costs: Sequence[Sequence[int]], budget: int, chain_seed: bool = False) -> list[Ranks]:
    """The nodes of the tree in the order in which they are popped, as 0-based rank tuples; at most `budget`.

    Ties go to the shallower node, then to the better ranks. With `chain_seed` the nodes of the top-1 chain cost nothing
    and go before everything else.
    """

    def entry(ranks: Ranks) -> tuple[int, int, Ranks]:
        if chain_seed and not any(ranks):
            return -1, len(ranks), ranks
        return sum(costs[position][rank] for position, rank in enumerate(ranks)), len(ranks), ranks

    heap, popped = [entry((0,))], []
    while heap and len(popped) < budget:
        _, depth, ranks = heapq.heappop(heap)
        popped.append(ranks)
        if ranks[-1] + 1 < len(costs[depth - 1]):
            heapq.heappush(heap, entry((*ranks[:-1], ranks[-1] + 1)))
        if depth < len(costs):
            heapq.heappush(heap, entry((*ranks, 0)))
    return popped
