"""The DFLASH worker's own drafting up to the draft model's forward pass: what batch does it hand over?"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import fakes
import torch
from fakes import BLOCK

REQUESTS, HIDDEN = 2, 4


class Lengths(torch.Tensor):
    def record_stream(self, stream: object) -> None:
        """The CPU's stream is none that torch would record."""


def worker(seen: list[Any]) -> MagicMock:
    """A worker whose buffers are real and whose draft model only looks at its batch."""
    made = MagicMock(block_size=BLOCK, page_size=1, device=torch.device("cpu"), _mask_token_id=7)
    made.configure_mock(use_compact_draft_cache=False, _use_triton_prepare_block=False, tp_rank=0)
    made._draft_block_ids_buf = torch.zeros(REQUESTS, BLOCK, dtype=torch.int64)
    made._draft_block_positions_buf = torch.zeros(REQUESTS, BLOCK, dtype=torch.int64)
    made._draft_block_tokens_buf = torch.zeros(REQUESTS, BLOCK, dtype=torch.int64)
    made._draft_verify_out_cache_loc_buf = torch.zeros(REQUESTS, BLOCK, dtype=torch.int64)
    made._draft_block_end_buf = torch.zeros(REQUESTS, dtype=torch.int32)
    made._draft_seq_lens_cpu_buf = torch.zeros(REQUESTS, dtype=torch.int32)
    made._block_pos_offsets = torch.arange(BLOCK)
    made.target_worker.model_runner.model.get_input_embeddings.return_value = lambda ids: torch.zeros(
        *ids.shape, HIDDEN
    )

    def forward(batch: Any) -> None:
        seen.append(batch)
        raise fakes.Stop

    made.draft_model_runner = MagicMock(**vars(fakes.model_runner(True)))
    made.draft_model_runner.forward = forward
    made.draft_model_runner.token_to_kv_pool_allocator.alloc.side_effect = torch.arange
    return made


def draft(module: ModuleType, this: MagicMock) -> None:
    batch, given = round_of()
    if hasattr(module, "DFlashWorker"):
        batch.batch_size = lambda: REQUESTS
        fakes.until_stopped(lambda: module.DFlashWorker._prepare_for_speculative_decoding(this, batch, given))
        return
    batch.configure_mock(device=torch.device("cpu"))
    with fakes.replaced(module, DFlashDraftInputV2=MagicMock, DFlashDraftInput=MagicMock):
        fakes.until_stopped(lambda: module.DFlashWorkerV2.forward_batch_generation(this, batch))


def round_of() -> tuple[MagicMock, MagicMock]:
    """The batch of a round, and the draft input that it carries."""
    lens = torch.full((REQUESTS,), 40, dtype=torch.int32).as_subclass(Lengths)
    mode = SimpleNamespace(is_extend=lambda: False, is_idle=lambda: False, is_decode=lambda: True)
    tokens = torch.arange(REQUESTS)
    given = MagicMock(
        bonus_tokens=tokens, verified_id=tokens, draft_seq_lens=lens, reserved_seq_lens_cpu=None
    )
    batch = MagicMock(
        forward_mode=mode, has_grammar=False, sampling_info=None, seq_lens=lens, seq_lens_cpu=lens
    )
    batch.configure_mock(
        req_pool_indices=tokens, is_extend_in_batch=False, return_logprob=False, spec_info=given
    )
    return batch, given


def case(experts_spread: bool, rounds: int = 1) -> Any:
    def run(modules: dict[str, ModuleType]) -> Any:
        from sglang.srt.model_executor import forward_batch_info

        (module,) = modules.values()
        places = MagicMock(side_effect=lambda **_: torch.arange(REQUESTS * BLOCK))
        stand_ins = {"assign_req_to_token_pool_func": MagicMock(), "assign_extend_cache_locs_func": places}
        seen: list[Any] = []
        this = worker(seen)
        with (
            fakes.replaced(
                forward_batch_info,
                get_moe_expert_parallel_world_size=lambda: 1 + experts_spread,
                get_parallel=lambda: SimpleNamespace(moe_ep_size=1 + experts_spread),
            ),
            fakes.replaced(module, **stand_ins),
        ):
            for _ in range(rounds):
                draft(module, this)
        count = seen[-1].num_token_non_padded
        return (
            None if count is None else [count.tolist(), str(count.dtype), seen[-1].num_token_non_padded_cpu]
        )

    return run


CASES = {"healthy": case(False), "spread": case(True), "rounds": case(True, rounds=3)}
EVENTS = {"healthy": [], "spread": ["added"], "rounds": ["added"]}
