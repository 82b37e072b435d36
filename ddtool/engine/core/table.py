"""Trees from the candidate table: one top-k over the scores of all nodes that can be in a tree."""

from __future__ import annotations

import torch
from torch import Tensor

from .candidates import CandidateTable
from .layout import Trees, rows_of, visibility
from .scores import NEVER_COST, fixed_point, seeded_order, tie_bits


class TableGrower:
    """Holds a table on the device."""

    def __init__(self, table: CandidateTable, budget: int, device: torch.device | str) -> None:
        length = table.lineage.shape[1] - 1
        self._width, self._candidates = budget + 1, len(table)
        self._shift = tie_bits(length, len(table))
        self._constants = torch.tensor([[0], [NEVER_COST * length << self._shift]], device=device)
        self._sums = tuple(level.to(device) for level in table.sums)
        self._order = seeded_order(len(table), table.chain, device)
        # One row a candidate, so that one gather fetches all that a chosen node needs.
        columns = [
            table.token[:, None],
            table.depth[:, None],
            table.rank[:, None],
            table.parent[:, None],
            table.lineage,
        ]
        self._facts = torch.cat(columns, 1).to(device)

    def __call__(self, log_probs: Tensor, token_ids: Tensor, roots: Tensor) -> Trees:
        """As `TreeBuilder`."""
        keys = self._keys(log_probs)
        chosen = keys.topk(
            self._width, largest=False
        ).indices  # no two keys are equal: sorted, and the same everywhere
        facts = self._facts.index_select(0, chosen.flatten()).view(*chosen.shape, -1)
        tokens = torch.cat([roots[:, None], token_ids.flatten(1)], 1).gather(1, facts[..., 0])
        kin = rows_of(chosen, self._candidates).gather(1, facts[..., 3:].flatten(1)).view(*chosen.shape, -1)
        return Trees(tokens, kin[..., 0], facts[..., 1], facts[..., 2], visibility(kin[..., 1:]))

    def _keys(self, log_probs: Tensor) -> Tensor:
        """int64 [bs, C]: each candidate's exact cost, and its number in the low bits."""
        costs = (
            (fixed_point(log_probs) << self._shift).flatten(1).t()
        )  # [L * K, bs]: the gathers below copy whole rows
        entries = torch.cat([self._constants.expand(-1, costs.shape[1]), costs])
        for pairs in self._sums[:-1]:
            left, right = entries.index_select(0, pairs).chunk(2)
            entries = left + right
        left, right = entries.index_select(0, self._sums[-1]).chunk(2)
        keys = torch.empty(left.shape[::-1], dtype=torch.int64, device=left.device)
        return torch.add(left.t(), right.t(), out=keys).add_(self._order)
