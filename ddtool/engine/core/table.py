"""Trees from the candidate table: one product scores all nodes that can be in a tree, one top-k picks the
best."""

from __future__ import annotations

import torch
from torch import Tensor

from .candidates import CandidateTable
from .layout import Trees, rows_of, sees_always, visibility
from .scores import FLOAT_BITS, dearest, exact_costs, number_bits, tie_breakers


class TableGrower:
    """Holds a table on the device."""

    def __init__(self, table: CandidateTable, budget: int, device: torch.device | str) -> None:
        length = table.between.shape[1] + 1
        bits = number_bits(length, len(table), FLOAT_BITS)
        ties = tie_breakers(len(table), table.chain, FLOAT_BITS) + ((dearest(length) << bits) * table.padding)
        self._ties = ties.to(device, torch.float64)
        self._paths = (table.paths * float(1 << bits)).to(device)
        self._rows = torch.arange(budget + 1, device=device)
        self._always = sees_always(budget + 1, len(table) - int(table.padding.sum()) - 1, device)
        # One row a candidate, so that one gather fetches all that a chosen node needs.
        columns = [table.token[:, None], table.depth[:, None], table.rank[:, None], table.parent[:, None]]
        self._facts = torch.cat([*columns, table.between], 1).to(device)

    def __call__(self, log_probs: Tensor, token_ids: Tensor, roots: Tensor) -> Trees:
        """As `TreeBuilder`."""
        keys = torch.addmm(self._ties, exact_costs(log_probs).flatten(1), self._paths)  # [bs, C]
        # Bits of positive floats order as the floats do, and integers are faster to pick from. No two are
        # equal, so the result is sorted and the same everywhere.
        chosen = keys.view(torch.int64).topk(len(self._rows), largest=False).indices
        facts = self._facts.index_select(0, chosen.flatten()).view(*chosen.shape, -1)
        tokens = torch.cat([roots[:, None], token_ids.flatten(1)], 1).gather(1, facts[..., 0])
        row_of = rows_of(chosen, keys.shape[1], self._rows)
        kin = row_of.gather(1, facts[..., 3:].flatten(1)).view(*chosen.shape, -1)
        return Trees(
            tokens=tokens,
            parents=kin[..., 0],
            depths=facts[..., 1],
            ranks=facts[..., 2],
            visible=visibility(self._always, kin[..., 1:]),
        )
