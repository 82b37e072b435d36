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

    @property
    def hidden_size(self) -> int:
        return int(self._lm_head.weight.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        weight: torch.Tensor = self._lm_head.weight
        return weight.dtype

    def __call__(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden [n, H] → log-probabilities [n, K] float32, descending, and token ids [n, K] int64."""
        if self.is_local:
            values, ids, total = self._best(hidden)
            return values - total, ids
        return self.merge(self.gather(self.pack(hidden)))

    def pack(self, hidden: torch.Tensor) -> torch.Tensor:
        """What this rank says of hidden [n, H]: float32 [n, 2 K + 1]. Token ids travel as the bits of float32."""
        values, ids, total = self._best(hidden)
        return torch.cat([values, ids.to(torch.int32).view(torch.float32), total], dim=-1)

    def gather(self, packed: torch.Tensor) -> torch.Tensor:
        """[..., 2 K + 1] of this rank → [..., ranks, 2 K + 1], the same on all of them. The one collective."""
        ranks: int = self._group.world_size
        rows = packed.flatten(0, -2)
        gathered = rows.new_empty((ranks * len(rows), rows.shape[1]))
        self._group.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered.view(ranks, *packed.shape).movedim(0, -2)

    def merge(self, gathered: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """gathered [n, ranks, 2 K + 1] → as `__call__`."""
        values = gathered[..., : self._topk].flatten(1)
        ids = gathered[..., self._topk : -1].contiguous().view(torch.int32).flatten(1)
        # stable: equal values keep rank order, on every rank alike
        best, order = torch.sort(values, dim=-1, descending=True, stable=True)
        best, order = best[:, : self._topk], order[:, : self._topk]
        total = torch.logsumexp(gathered[..., -1], dim=-1, keepdim=True)
        return best - total, ids.gather(1, order).to(torch.int64)

    def _best(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of this rank's columns: the K best values, their token ids, and the log-sum-exp [n, 1]."""
        logits = self._local_logits(hidden)
        values, columns = torch.topk(logits, self._topk, dim=-1)
        return values, self._ids[columns], torch.logsumexp(logits, dim=-1, keepdim=True)

    def _local_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        weight = self._lm_head.weight
        hidden = hidden.to(weight.dtype)
        logits = _float32_product(hidden, weight[: self._base])
        if self._added.stop > self._added.start:
            logits = torch.cat([logits, _float32_product(hidden, weight[self._added])], dim=-1)
        if self._padding:
            logits = torch.nn.functional.pad(logits, (0, self._padding), value=float("-inf"))
        return logits


def _float32_product(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """hidden @ weight.T, not rounded to bfloat16: that alone changes up to a quarter of the trees."""
    if hidden.dtype != torch.float32 and hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return torch.mm(hidden, weight.T).float()
