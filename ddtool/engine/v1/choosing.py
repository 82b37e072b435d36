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
        if sampling_info.logit_bias is not None:
            logits = logits + sampling_info.logit_bias.repeat_interleave(self._width, dim=0)
        if sampling_info.is_all_greedy:
            return torch.argmax(logits, dim=-1).view(-1, self._width)
        drawn = sample(
            logits,
            temperatures=self._per_node(sampling_info.temperatures),
            top_ps=self._per_node(sampling_info.top_ps),
            top_ks=self._per_node(sampling_info.top_ks),  # 1 is SGLang's word for temperature 0
            min_ps=self._per_node(sampling_info.min_ps),
            uniforms=torch.rand(logits.shape[0], generator=self._generator, device=logits.device),
            filtered=self._filters(sampling_info),
        )
        return drawn.view(-1, self._width)

    def _filters(self, sampling_info: Any) -> bool:
        needs = ("need_top_p_sampling", "need_top_k_sampling", "need_min_p_sampling")
        return any(getattr(sampling_info, need) for need in needs)

    def _per_node(self, per_request: torch.Tensor) -> torch.Tensor:
        return per_request.flatten().repeat_interleave(self._width)
