"""Best K tokens and their log-probabilities under the target's vocab-parallel head, the same on every rank."""

from __future__ import annotations

from typing import Any

import torch


class ShardedTopK:
    """Top K of a head whose rows are spread over the ranks of `group`.

    Each rank looks at its own columns only, without the padding; one gather carries per row K values, K token ids
    and the shard's log-sum-exp. From there on every rank computes the same from the same bytes.
    """

    def __init__(self, lm_head: Any, topk: int, group: Any) -> None:
        for needed in ("weight", "shard_indices"):
            if not hasattr(lm_head, needed):
                raise RuntimeError(
                    f"DDTREE needs the target's vocab-parallel lm_head, but {type(lm_head).__name__} has no {needed}: "
                    "this target model is not supported."
                )
        shard = lm_head.shard_indices
        weight = lm_head.weight
        self._lm_head, self._group, self._topk = lm_head, group, topk
        self._base = int(shard.num_org_elements)
        added, padded = int(shard.num_added_elements), int(shard.num_org_elements_padded)
        self._added = slice(padded, padded + added)
        base_start, added_start = int(shard.org_vocab_start_index), int(shard.added_vocab_start_index)
        ids = [*range(base_start, base_start + self._base), *range(added_start, added_start + added)]
        self._padding = max(topk - len(ids), 0)  # columns that a small shard lacks, never chosen: -inf
        self._ids = torch.tensor(ids + [0] * self._padding, dtype=torch.int64, device=weight.device)

    @property
    def device(self) -> torch.device:
        return self._ids.device

    @property
    def is_local(self) -> bool:
        """One rank has the whole vocabulary: nothing is gathered."""
        return bool(self._group.world_size == 1)

    def __call__(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden [n, H] → log-probabilities [n, K] float32, descending, and token ids [n, K] int64."""
        logits = self._local_logits(hidden)
        values, columns = torch.topk(logits, self._topk, dim=-1)
        ids = self._ids[columns]
        total = torch.logsumexp(logits, dim=-1, keepdim=True)
        if not self.is_local:
            values, ids, total = self._merge(values, ids, total)
        return values - total, ids

    def _local_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        weight = self._lm_head.weight
        hidden = hidden.to(weight.dtype)
        logits = _float32_product(hidden, weight[: self._base])
        if self._added.stop > self._added.start:
            logits = torch.cat([logits, _float32_product(hidden, weight[self._added])], dim=-1)
        if self._padding:
            logits = torch.nn.functional.pad(logits, (0, self._padding), value=float("-inf"))
        return logits

    def _merge(
        self, values: torch.Tensor, ids: torch.Tensor, total: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # ids travel as the bits of float32, so that one gather does
        packed = torch.cat([values, ids.to(torch.int32).view(torch.float32), total], dim=-1)
        ranks: int = self._group.world_size
        rows, columns = packed.shape
        gathered = packed.new_empty((ranks * rows, columns))
        self._group.all_gather_into_tensor(gathered, packed.contiguous())
        by_row = gathered.view(ranks, rows, columns).transpose(0, 1)
        all_values = by_row[..., : self._topk].reshape(rows, -1)
        all_ids = by_row[..., self._topk : -1].contiguous().view(torch.int32).reshape(rows, -1)
        # stable: equal values keep rank order, on every rank alike
        best, order = torch.sort(all_values, dim=-1, descending=True, stable=True)
        best, order = best[:, : self._topk], order[:, : self._topk]
        return (
            best,
            all_ids.gather(1, order).to(torch.int64),
            torch.logsumexp(by_row[..., -1], dim=-1, keepdim=True),
        )


def _float32_product(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """hidden @ weight.T, not rounded to bfloat16: that alone changes up to a quarter of the trees."""
    if hidden.dtype != torch.float32 and hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return torch.mm(hidden, weight.T).float()
