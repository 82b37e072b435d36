"""Best-first trees on the device: the top B prefixes of a factorised draft (arXiv 2604.12989), a whole batch at once.

The paper pops nodes from a heap. Here every node that can be in a tree has a place in a static table, and one top-k
over their scores picks all of them: no data-dependent shape, no host synchronisation, safe in a CUDA graph.

bs requests, L positions, K choices a position, B nodes, W = B + 1 rows with the root.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .beam import BeamGrower
from .candidates import candidate_table
from .layout import Trees
from .scores import most_candidates
from .table import TableGrower

__all__ = ["TABLE_LIMIT", "TreeBuilder", "Trees"]

# On an H200, graph-captured, the table wins at every size its keys can number: 7 positions, 8 choices, batch 32, table
# against beam: 1,084 candidates (budget 32) 0.08 ms to 0.41; 12,793 (budget 128) 0.16 to 0.52. On one CPU thread they
# meet near 10,000. The limit bounds memory (L * K * 8 bytes a candidate) and the second that making a table takes.
TABLE_LIMIT = 16384


class TreeBuilder:
    """Trees of exactly `budget` nodes from `topk` choices at each of `length` positions.

    chain_seed: the top-1 chain is always in the tree, and the other nodes are the best of the rest
    Made once per shape, which takes up to some seconds for a large table. Raises ValueError for an impossible shape.
    """

    def __init__(
        self,
        length: int,
        topk: int,
        budget: int,
        chain_seed: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value in (("length", length), ("topk", topk), ("budget", budget)):
            if value < 1:
                raise ValueError(f"a tree needs a {name} of at least 1, not {value}")
        limit = min(max(TABLE_LIMIT, budget + 1), most_candidates(length))
        table = candidate_table(length, topk, budget, chain_seed, limit)
        self._grow: TableGrower | BeamGrower
        if table is None:
            self._grow = BeamGrower(length, topk, budget, chain_seed, device)
        else:
            self._grow = TableGrower(table, budget, device)

    def __call__(self, log_probs: Tensor, token_ids: Tensor, roots: Tensor) -> Trees:
        """The best B prefixes of each request. The same bits in give the same tree on every device and in every batch.

        log_probs: float32 [bs, L, K], in falling order along K; NaN counts as -inf, and above 0 as 0
        token_ids: int64 [bs, L, K], the tokens of `log_probs`, all different along K
        roots: int64 [bs], the last known token of each request
        """
        return self._grow(log_probs, token_ids, roots)
