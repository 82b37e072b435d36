"""The copy into the buffers of a decode graph, called on CPU tensors as the graph runner calls it."""

from __future__ import annotations

import inspect
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

FILE = "sglang/srt/model_executor/cuda_graph_runner.py"
BS, BLOCK, TREE = 1, 8, 33


def buffers(module: ModuleType) -> Any:
    made = module.DecodeInputBuffers.create(
        device=torch.device("cpu"),
        max_bs=4,
        max_num_token=4 * BLOCK,
        hidden_size=16,
        vocab_size=32,
        dtype=torch.float32,
        dp_size=1,
        pp_size=1,
        is_encoder_decoder=False,
        require_mlp_tp_gather=False,
        seq_len_fill_value=1,
        encoder_len_fill_value=0,
        num_tokens_per_bs=BLOCK,
        cache_loc_dtype=torch.int64,
        enable_mamba_track=False,
    )
    made.share_buffers()
    return made


def batch(tokens: int = BLOCK, **changes: object) -> SimpleNamespace:
    fields = {
        "input_ids": torch.arange(tokens),
        "req_pool_indices": torch.tensor([2]),
        "seq_lens": torch.tensor([40], dtype=torch.int32),
        "seq_lens_cpu": torch.tensor([40], dtype=torch.int32),
        "out_cache_loc": torch.arange(100, 100 + tokens),
        "out_cache_loc_swa": None,
        "positions": torch.arange(40, 40 + tokens),
        "mamba_track_indices": None,
        "mamba_track_mask": None,
        "encoder_lens": None,
        "mrope_positions": torch.arange(3 * tokens).reshape(3, tokens),
        "num_token_non_padded": torch.tensor(tokens, dtype=torch.int32),
        "ngram_embedding_info": None,
    }
    return SimpleNamespace(**{**fields, **changes})


class Runner:
    """Stands where CudaGraphRunner.replay_prepare stands in the call stack."""

    def __init__(self, draft: bool) -> None:
        self.model_runner = SimpleNamespace(is_draft_worker=draft, tp_rank=3)

    def replay_prepare(self, target: Any, forward_batch: SimpleNamespace) -> None:
        (name,) = {"forward_batch", "batch"} & set(
            inspect.signature(target.populate_from_forward_batch).parameters
        )
        target.populate_from_forward_batch(
            **{name: forward_batch},
            raw_bs=BS,
            raw_num_token=BS * BLOCK,
            bs=BS,
            seq_len_fill_value=1,
            require_gathered_buffer=False,
            num_tokens_per_bs=BLOCK,
            nsa_enable_prefill_cp=False,
            enable_num_token_non_padded_flag=True,
        )


COPIED = ("input_ids", "req_pool_indices", "seq_lens", "out_cache_loc", "positions", "num_token_non_padded")


def case(draft: bool = True, **changes: Any) -> Any:
    def run(modules: dict[str, ModuleType]) -> dict[str, list[int]]:
        target = buffers(modules[FILE])
        Runner(draft).replay_prepare(target, batch(**changes))
        return {name: getattr(target, name).tolist() for name in (*COPIED, "mrope_positions")}

    return run


CASES = {
    "healthy": case(),
    "positions": case(positions=None),
    "target": case(draft=False, positions=None),
    "padded_count": case(num_token_non_padded=None),
    "two": case(input_ids=None, out_cache_loc=None),
    "width": case(tokens=TREE, mrope_positions=None),
}
EVENTS = {
    "healthy": [],
    "positions": ["none"],
    "target": ["none"],
    "padded_count": ["none"],
    "two": ["none", "none"],
    "width": ["shape", "shape", "shape"],
}
