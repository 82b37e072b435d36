"""Which nodes can be in a tree at all: a table that depends on shapes only, built once.

A node is a tuple of ranks (r_1 .. r_d): at depth j it takes the drafter's r_j-th choice, 1 the best. Every
tuple that is no deeper and nowhere of a worse rank scores at least as well, and there are sum_j prod_{i<=j}
r_i of those, itself included. Where that exceeds the budget B, B better nodes exist whatever the
log-probabilities are, so the tuple cannot be among the best B (arXiv 2604.12989, propositions 1 and 2, give
the tree as the best B prefixes). For depth 7, 8 choices and budget 32 this leaves 1,083 of 2.4 million
tuples.

Candidates are ordered by depth, then by ranks. All that must precede a tuple precede it in this order too, so
breaking ties by it keeps the best B closed under "parent of".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class CandidateTable:
    """All candidates of one shape: C of them, the root first and padding last. CPU tensors, int64 where not said.

    depth, rank: [C], and which choice it takes at that depth (index into K); 0 for the root and for padding
    parent: [C], C ("nobody") for the root and for padding
    between: [C, L - 1], the nodes between it and the root, filled up with itself
    token: [C], index into (root token, token ids [L * K]); padding repeats the root's token
    paths: float64 [L * K, C], 1 where the candidate's path takes that choice; costs [L * K] times this are its cost
    padding: bool [C]
    chain: [n], the root and the top-1 chain when it is seeded, else empty
    """

    depth: Tensor
    rank: Tensor
    parent: Tensor
    between: Tensor
    token: Tensor
    paths: Tensor
    padding: Tensor
    chain: Tensor

    def __len__(self) -> int:
        return len(self.depth)


def enumerate_candidates(
    length: int, topk: int, budget: int, chain_seed: bool = False, limit: int | None = None
) -> list[Ranks] | None:
    """Every rank tuple that can be in a tree, the root () first, by depth, then by ranks; None if more than `limit`.

    With `chain_seed` the chain's nodes are in the tree anyway: of the nodes that precede a tuple of depth d,
    d are on the chain, and the rest compete for what the chain leaves of the budget.
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
    """The table for L = `length` positions, K = `topk` choices, `budget` nodes; None if over `limit` candidates."""
    rows = enumerate_candidates(length, topk, budget, chain_seed, limit)
    if rows is None:
        return None
    padding = max(0, budget + 1 - len(rows))
    number = {ranks: index for index, ranks in enumerate(rows)}
    nobody = len(rows) + padding
    pads = range(len(rows), nobody)
    chain = range(min(length, budget) + 1) if chain_seed else range(0)
    between = [
        [number[ranks[:depth]] for depth in range(1, length)] for ranks in rows
    ]  # past its end, itself
    return CandidateTable(
        depth=torch.tensor([len(ranks) for ranks in rows] + [0] * padding),
        rank=torch.tensor([ranks[-1] - 1 if ranks else 0 for ranks in rows] + [0] * padding),
        parent=torch.tensor([number[ranks[:-1]] if ranks else nobody for ranks in rows] + [nobody] * padding),
        between=torch.tensor(between + [[pad] * (length - 1) for pad in pads], dtype=torch.int64),
        token=torch.tensor([_token(ranks, topk) for ranks in rows] + [0] * padding),
        paths=_paths([*rows, *[()] * padding], length, topk),
        padding=torch.arange(nobody) >= len(rows),
        chain=torch.tensor([number[(1,) * depth] for depth in chain], dtype=torch.int64),
    )


def _paths(rows: Sequence[Ranks], length: int, topk: int) -> Tensor:
    """float64 [length * topk, rows]: 1 where a row's path takes that choice."""
    paths = torch.zeros(length * topk, len(rows), dtype=torch.float64)
    steps = [
        (position * topk + rank - 1, row)
        for row, ranks in enumerate(rows)
        for position, rank in enumerate(ranks)
    ]
    taken, row = torch.tensor(steps, dtype=torch.int64).view(-1, 2).unbind(1)
    paths[taken, row] = 1.0
    return paths


def _token(ranks: Ranks, topk: int) -> int:
    return 1 + (len(ranks) - 1) * topk + ranks[-1] - 1 if ranks else 0
