"""The graph runner's own replay preparation, called with a batch of the right or the wrong width, on CPU tensors."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import fakes
import graph_copy
import torch
from fakes import BLOCK, RUNNER_V1, TREE

COPIED = ("input_ids", "req_pool_indices", "seq_lens", "out_cache_loc", "positions")


def registry(max_tokens: int) -> Any:
    from sglang.srt.model_executor.cuda_graph_buffer_registry import build_decode_registry

    return build_decode_registry(
        device=torch.device("cpu"),
        max_bs=4,
        max_num_token=max_tokens,
        seq_len_fill_value=1,
        cache_loc_dtype=torch.int64,
        share_pool=False,
    )


def prepare(
    modules: dict[str, ModuleType], runner: MagicMock, batch: SimpleNamespace
) -> dict[str, list[int]]:
    """The buffers after the runner's real method has copied the batch into them."""
    (file,) = modules
    module = modules[file]
    if fakes.RELEASE < "0.5.13":
        runner.buffers = graph_copy.buffers(module)
        buffers = vars(runner.buffers)
    else:
        runner.buffer_registry = registry(4 * BLOCK)
        buffers = {name: runner.buffer_registry.get_slot(name).buffer for name in COPIED}
    method = (
        module.CudaGraphRunner.replay_prepare
        if file == RUNNER_V1
        else module.DecodeCudaGraphRunner.load_batch
    )
    with fakes.replaced(
        module, build_replay_fb_view=MagicMock(), enable_num_token_non_padded=lambda *_: False
    ):
        method(runner, batch)
    return {name: buffers[name].tolist() for name in COPIED}


def graph_runner(draft: bool) -> MagicMock:
    """A runner whose graphs were captured for the block."""
    made = MagicMock(capture_bs=[1, 2, 4], max_bs=4, seq_len_fill_value=1, require_mlp_tp_gather=False)
    made.configure_mock(num_tokens_per_bs=BLOCK, captured_req_width=BLOCK, ragged_verify_mode=False)
    made.configure_mock(require_gathered_buffer=False, enable_two_batch_overlap=False, enable_pdmux=False)
    made.configure_mock(is_encoder_decoder=False)
    made.configure_mock(
        nsa_enable_prefill_cp=False, dllm_uses_input_embeds=False, dllm_input_preparation=None
    )
    made._pad_to_bucket = lambda size, sizes: min(one for one in sizes if one >= size)
    made._take_early_verify_metadata.return_value = None
    made.model_runner = MagicMock(**vars(fakes.model_runner(draft)))
    return made


def case(draft: bool = True, times: int = 1, **changes: Any) -> Any:
    def run(modules: dict[str, ModuleType]) -> dict[str, list[int]]:
        runner = graph_runner(draft)
        for _ in range(times - 1):
            try:
                prepare(modules, runner, fakes.batch(**changes))
            except RuntimeError as error:
                assert "must match the size" in str(error)
        return prepare(modules, runner, fakes.batch(**changes))

    return run


WIDE = {"tokens": TREE, "spec_info": SimpleNamespace(draft_token_num=TREE)}
CASES = {
    "healthy": case(),
    "three": case(requests=3, tokens=3 * BLOCK),
    "wide": case(**WIDE),
    "repeated": case(times=3, **WIDE),
    "target": case(draft=False, **WIDE),
    "broadcast": case(positions=torch.tensor([7])),
    "requests": case(requests=2, tokens=2 * BLOCK, seq_lens=torch.tensor([40, 40, 40], dtype=torch.int32)),
}
EVENTS = {
    "healthy": [],
    "three": [],
    "wide": ["width"] * 3,
    "repeated": ["width"] * 3,
    "target": ["width"] * 3,
    "broadcast": ["width"],
    "requests": ["length"],
}
