"""What the drafter knows of the text: its keys and values of every committed token, made of the target's hidden states.

SGLang's worker does the same after a prefill. Its way of doing it in a round waits for the device up to three times.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func


class DraftContext:
    """worker: SGLang's DFLASH worker, whose drafter and memory this is."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        projection = worker.draft_model.fc
        self.features = int(projection.in_features)  # width of what the target captures for the drafter
        self.dtype: torch.dtype = projection.weight.dtype

    def absorb(self, hidden: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        """Keys and values of N tokens into their slots. hidden: [N, features]. Waits for nothing, may be captured."""
        projected = self._worker.draft_model.project_target_hidden(hidden)
        self._worker._append_target_hidden_sequential(projected, positions, slots)

    def advance(self, batch: Any, draft_input: Any) -> None:
        """The drafter sees the batch's new lengths, and nothing is left to absorb."""
        draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
        if self._worker.use_compact_draft_cache:
            draft_input.draft_seq_lens = self._move_window(batch)
        else:
            draft_input.draft_seq_lens = batch.seq_lens.to(torch.int32)

    def _move_window(self, batch: Any) -> torch.Tensor:
        """A drafter that sees the last positions only has rows of its own, which name their slots."""
        lengths = self._worker._compute_compact_draft_seq_lens(batch.seq_lens)
        slots = self._worker._gather_req_to_token_segments(
            req_to_token=batch.req_to_token_pool.req_to_token,
            req_pool_indices=batch.req_pool_indices.to(torch.int64),
            start=batch.seq_lens.to(torch.int64) - lengths.to(torch.int64),
            lengths=lengths,
        )
        assign_req_to_token_pool_func(
            batch.req_pool_indices,
            self._worker.draft_model_runner.req_to_token_pool.req_to_token,
            torch.zeros_like(lengths),
            lengths,
            slots,
            len(lengths),
        )
        return lengths
