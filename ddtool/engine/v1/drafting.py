"""One forward of the drafter over a block of mask tokens: the hidden states from which a tree is drafted."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from .release import runner_fields


class BlockDrafter:
    """Runs the draft worker's model; owns the buffers of its hand-built batch.

    block: B, the width of its graphs. window: the last positions it sees, or None for all.
    """

    def __init__(
        self, model_runner: Any, embed: Any, block: int, mask_token_id: int, window: int | None
    ) -> None:
        self._runner, self._embed = model_runner, embed
        self._block, self._mask_token_id, self._window = block, mask_token_id, window
        device = model_runner.device
        self._offsets = torch.arange(block, device=device)
        self._spec_info = DFlashVerifyInput(
            draft_token=torch.empty(0, dtype=torch.int64, device=device),
            positions=torch.empty(0, dtype=torch.int64, device=device),
            draft_token_num=block,
            custom_mask=None,  # a block sees itself in both directions
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        self._token_counts: dict[int, torch.Tensor] = {}

    def __call__(self, batch: Any, draft_input: Any) -> torch.Tensor:
        """Hidden states [bs, B - 1, H] of the positions after each request's last token."""
        requests = batch.batch_size()
        allocator = self._runner.token_to_kv_pool_allocator
        # A block's keys and values are needed for this forward only; target and drafter share the slots' numbers
        before = allocator.backup_state()
        try:
            slots = allocator.alloc(requests * self._block)
            if slots is None:
                raise RuntimeError(
                    f"DDTREE: no {requests * self._block} free KV slots for the drafter's block."
                )
            forward_batch = self._forward_batch(batch, draft_input, slots)
            with torch.inference_mode():
                hidden = self._runner.forward(forward_batch).logits_output.hidden_states
        finally:
            allocator.restore_state(before)
        return hidden.view(requests, self._block, -1)[:, 1:]

    def _forward_batch(self, batch: Any, draft_input: Any, slots: torch.Tensor) -> ForwardBatch:
        requests = batch.batch_size()
        ids = torch.full(
            (requests, self._block), self._mask_token_id, dtype=torch.int64, device=self._runner.device
        )
        ids[:, 0] = draft_input.bonus_tokens
        prefix = draft_input.draft_seq_lens.to(torch.int32)
        prefix_cpu = batch.seq_lens_cpu.to(torch.int32)
        if self._window is not None:
            prefix_cpu = prefix_cpu.clamp(max=self._window)
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            self._runner.req_to_token_pool.req_to_token,
            prefix,
            prefix + self._block,
            slots,
            requests,
        )
        return ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,  # a fixed number of tokens a request, and graphs for it
            batch_size=requests,
            input_ids=ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=prefix,
            out_cache_loc=slots,
            seq_lens_sum=int(prefix_cpu.sum()),
            seq_lens_cpu=prefix_cpu,
            positions=(batch.seq_lens.to(torch.int64)[:, None] + self._offsets).flatten(),
            input_embeds=self._embed(ids).flatten(0, 1),
            spec_algorithm=batch.spec_algorithm,
            spec_info=self._spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            # With expert parallelism the graph copies it; stock DFLASH leaves it None and crashes there
            num_token_non_padded=self._token_count(requests * self._block),
            num_token_non_padded_cpu=requests * self._block,
            **runner_fields(self._runner),
        )

    def _token_count(self, tokens: int) -> torch.Tensor:
        if tokens not in self._token_counts:
            self._token_counts[tokens] = torch.tensor(tokens, dtype=torch.int32, device=self._runner.device)
        return self._token_counts[tokens]
