"""Which nodes can be in a tree at all: a table that depends on shapes only, built once.

A node is a tuple of ranks (r_1 .. r_d): at depth j it takes the drafter's r_j-th choice, 1 the best. Every tuple that is no deeper and
nowhere of a worse rank scores at least as well, and there are sum_j prod_{i<=j} r_i of those, itself included. Where that
exceeds the budget B, B better nodes exist whatever the log-probabilities are, so the tuple cannot be among the best B
(arXiv 2604.12989, propositions 1 and 2, give the tree as the best B prefixes). For depth 7, 8 choices and budget 32 this
leaves 1,083 of 2.4 million tuples.

Candidates are ordered by depth, then by ranks. All that must precede a tuple precede it in this order too, so breaking
ties by it keeps the best B closed under "parent of".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

import torch
from torch import Tensor

Ranks = tuple[int, ...]

ZERO, NEVER = 0, 1  # the two constant entries that precede the costs, at every level of the sums


@dataclass(frozen=True)
class CandidateTable:
    """All candidates of one shape; C of them, the root first and padding last. CPU tensors, all int64.

    depth, rank: [C], and which choice it takes at that depth (index into K); 0 for the root and for padding
    parent: [C], C ("nobody") for the root and for padding
    lineage: [C, L + 1], the node, its parent, its parent's parent ..., the last one repeated: its ancestors as a set
    token: [C], index into (root token, token ids [L * K]); padding repeats the root's token
    sums: how to add a candidate's costs, see `sum_plan`
    chain: [n], the root and the top-1 chain when it is seeded, else empty
    """

    depth: Tensor
    rank: Tensor
    parent: Tensor
    lineage: Tensor
    token: Tensor
    sums: tuple[Tensor, ...]
    chain: Tensor

    def __len__(self) -> int:
        return len(self.depth)


def enumerate_candidates(
    length: int, topk: int, budget: int, chain_seed: bool = False, limit: int | None = None
) -> list[Ranks] | None:
    """Every rank tuple that can be in a tree, the root () first, by depth and then by ranks; None if more than `limit`.

    With `chain_seed` the chain's nodes are in the tree anyway: of the nodes that precede a tuple of depth d, d are on the
    chain, and the rest compete for what the chain leaves of the budget.
    """
    spare = budget - min(length, budget) if chain_seed else budget
    found: list[Ranks] = [()]
    level: list[tuple[Ranks, int, int]] = [((), 1, 0)]
    for depth in range(1, length + 1):
        grown: list[tuple[Ranks, int, int]] = []
        for ranks, product, preceding in level:
            for rank in range(1, topk + 1):
                total = preceding + product * rank
                if total - (depth if chain_seed else 0) > spare:
                    break  # worse ranks only have more before them
                grown.append(((*ranks, rank), product * rank, total))
            if limit is not None and len(found) + len(grown) > limit:
                return None
        found += [ranks for ranks, _, _ in grown]
        level = grown
    return found


@lru_cache(maxsize=16)
def candidate_table(
    length: int, topk: int, budget: int, chain_seed: bool, limit: int
) -> CandidateTable | None:
    """The table for L = `length` positions, K = `topk` choices and `budget` nodes; None if over `limit` candidates."""
    rows = enumerate_candidates(length, topk, budget, chain_seed, limit)
    if rows is None:
        return None
    padding = max(0, budget + 1 - len(rows))
    number = {ranks: index for index, ranks in enumerate(rows)}
    nobody = len(rows) + padding
    pads = range(len(rows), nobody)
    chain = range(min(length, budget) + 1) if chain_seed else range(0)
    lineage = [[number[ranks[: max(0, len(ranks) - up)]] for up in range(length + 1)] for ranks in rows]
    return CandidateTable(
        depth=torch.tensor([len(ranks) for ranks in rows] + [0] * padding),
        rank=torch.tensor([ranks[-1] - 1 if ranks else 0 for ranks in rows] + [0] * padding),
        parent=torch.tensor([number[ranks[:-1]] if ranks else nobody for ranks in rows] + [nobody] * padding),
        lineage=torch.tensor(lineage + [[pad] * (length + 1) for pad in pads]),
        token=torch.tensor([_token(ranks, topk) for ranks in rows] + [0] * padding),
        sums=sum_plan(
            [_entries(ranks, length, topk) for ranks in rows] + [[NEVER] + [ZERO] * (length - 1)] * padding
        ),
        chain=torch.tensor([number[(1,) * depth] for depth in chain], dtype=torch.int64),
    )


def sum_plan(rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """Index pairs that add up each row's entries by halving: one int64 tensor [2 * n] a level, lefts before rights.

    `rows` [C][L] names entries of level 0, (0, never, costs [L * K]). Level i + 1 has the entries left + right of level i,
    each distinct pair once; the last level has one entry for each row, in order.
    """
    plan = []
    while len(rows[0]) > 2:
        pairs = {(ZERO, ZERO): ZERO, (NEVER, ZERO): NEVER}
        rows = [[pairs.setdefault(pair, len(pairs)) for pair in _in_twos(row)] for row in rows]
        plan.append(_level(list(pairs)))
    plan.append(_level([(row[0], row[1] if len(row) == 2 else ZERO) for row in rows]))
    return tuple(plan)


def _in_twos(row: Sequence[int]) -> Iterable[tuple[int, int]]:
    return zip_longest(row[::2], row[1::2], fillvalue=ZERO)


def _level(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor([left for left, _ in pairs] + [right for _, right in pairs])


def _entries(ranks: Ranks, length: int, topk: int) -> list[int]:
    """The level-0 entries whose sum is the candidate's cost, one a position."""
    costs = [2 + position * topk + rank - 1 for position, rank in enumerate(ranks)]
    return costs + [ZERO] * (length - len(costs))


def _token(ranks: Ranks, topk: int) -> int:
    return 1 + (len(ranks) - 1) * topk + ranks[-1] - 1 if ranks else 0
