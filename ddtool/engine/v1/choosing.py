"""What the target says at every node: its best token, or a token drawn as the request's sampling parameters want."""

from __future__ import annotations

from typing import Any

import torch

from ..core.sampling import sample


class Chooser:
    """Draws with one generator a rank, seeded alike and advanced alike: all ranks see the same numbers.

    The logits are gathered, hence the same everywhere; with them every rank makes the same choice, without a broadcast.
    """

    def __init__(self, width: int, seed: int, device: torch.device | str) -> None:
        self._width = width
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(seed)

    def __call__(self, logits: torch.Tensor, sampling_info: Any) -> torch.Tensor:
        """logits [bs × W, V] of the target → tokens [bs, W] int64."""
        rows = logits.shape[0]
        if sampling_info.logit_bias is not None:
            logits = logits + sampling_info.logit_bias.repeat_interleave(self._width, dim=0)
        greedy = torch.argmax(logits, dim=-1)
        if sampling_info.is_all_greedy:
            return greedy.view(-1, self._width)
        uniforms = torch.rand(rows, generator=self._generator, device=logits.device)
        top_ks = self._per_node(sampling_info.top_ks)
        drawn = sample(
            logits.float(),
            temperatures=self._per_node(sampling_info.temperatures),
            top_ps=self._per_node(sampling_info.top_ps),
            top_ks=top_ks,
            min_ps=self._per_node(sampling_info.min_ps),
            uniforms=uniforms,
        )
        # SGLang spells temperature 0 as top_k 1: exactly the best token then, ties included
        return torch.where(top_ks == 1, greedy, drawn).view(-1, self._width)

    def _per_node(self, per_request: torch.Tensor) -> torch.Tensor:
        return per_request.flatten().repeat_interleave(self._width)
