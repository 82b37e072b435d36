"""The same trees where the candidate table would be too big: a beam for each depth, L small top-ks for a large one.

Exact as well. The parent of a node among the best B is among the best B itself, so the best B of each depth,
grown from the best B of the depth before, hold every node of the tree. Costs, tie-breaks and results are
those of the table.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import Trees, rows_of, sees_always, visibility
from .scores import INTEGER_BITS, exact_costs, number_bits, tie_breakers


class BeamGrower:
    """Needs at least `budget` prefixes to exist; shapes with fewer fit into a table."""

    def __init__(
        self, length: int, topk: int, budget: int, chain_seed: bool, device: torch.device | str
    ) -> None:
        self._length, self._topk = length, topk
        beams = [1]
        for _ in range(length):
            beams.append(min(budget, beams[-1] * topk))
        self._beams, self._starts = beams, [sum(beams[:depth]) for depth in range(length + 1)]
        self._candidates = sum(beams)
        self._bits = number_bits(length, max(self._candidates, budget * topk), INTEGER_BITS)

        # Beams keep the candidates' order, so the chain's node is the first of each.
        first = torch.tensor([0] if chain_seed else [], dtype=torch.int64)
        chain = torch.tensor(self._starts[: min(length, budget) + 1] if chain_seed else [], dtype=torch.int64)
        self._grown_ties = [tie_breakers(size * topk, first, INTEGER_BITS).to(device) for size in beams[:-1]]
        self._ties = tie_breakers(self._candidates, chain, INTEGER_BITS).to(device)
        self._rows = torch.arange(budget + 1, device=device)
        self._always = sees_always(budget + 1, budget, device)
        self._depths = torch.arange(length + 1).repeat_interleave(torch.tensor(beams)).to(device)

    def __call__(self, log_probs: Tensor, token_ids: Tensor, roots: Tensor) -> Trees:
        """As `TreeBuilder`."""
        costs, parents, ranks, tokens = self._grow(exact_costs(log_probs).long(), token_ids, roots)
        keys = (costs << self._bits) + self._ties
        chosen = keys.topk(len(self._rows), largest=False).indices
        parent_rows = rows_of(chosen, self._candidates, self._rows).gather(1, parents.gather(1, chosen))
        upward = parent_rows.clamp_min(0)  # the root as its own parent: a lineage may go on there
        lineage = [upward]
        for _ in range(self._length - 2):
            lineage.append(upward.gather(1, lineage[-1]))
        return Trees(
            tokens=tokens.gather(1, chosen),
            parents=parent_rows,
            depths=self._depths[chosen],
            ranks=ranks.gather(1, chosen),
            visible=visibility(self._always, torch.stack(lineage, 2)),
        )

    def _grow(self, costs: Tensor, token_ids: Tensor, roots: Tensor) -> tuple[Tensor, ...]:
        """Cost, parent (its place in the result), rank and token of all beams' nodes, each int64 [bs, nodes]."""
        beam = costs.new_zeros(len(roots), 1)
        depths = [(beam, beam + self._candidates, beam, roots[:, None])]
        for depth in range(self._length):
            grown = (beam[:, :, None] + costs[:, depth, None, :]).flatten(1)
            keys = (grown << self._bits) + self._grown_ties[depth]
            chosen = keys.topk(self._beams[depth + 1], largest=False).indices.sort(1).values
            beam, choice = grown.gather(1, chosen), chosen % self._topk
            parents = chosen // self._topk + self._starts[depth]
            depths.append((beam, parents, choice, token_ids[:, depth].gather(1, choice)))
        return tuple(torch.cat(parts, 1) for parts in zip(*depths, strict=True))
