"""Runs in a child that can import SGLang on CPU: the same calls on the wheel's module and on the patched one.

argv: path of the patched cuda_graph_runner.py. Prints one JSON object {wheel, patched: {case: outcome}, cost_us}.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import time
from types import SimpleNamespace

import torch


def load(path: str):
    """The patched file as a module of its own, beside the wheel's; with what its import printed to stderr."""
    spec = importlib.util.spec_from_file_location("patched_cuda_graph_runner", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        spec.loader.exec_module(module)
    return module, said.getvalue()


BS, BLOCK, TREE = 1, 8, 33


def buffers(module):
    wanted = module.DecodeInputBuffers.create.__kwdefaults__ or {}
    arguments = {
        "device": torch.device("cpu"),
        "max_bs": 4,
        "max_num_token": 4 * BLOCK,
        "hidden_size": 16,
        "vocab_size": 32,
        "dtype": torch.float32,
        "dp_size": 1,
        "pp_size": 1,
        "is_encoder_decoder": False,
        "require_mlp_tp_gather": False,
        "seq_len_fill_value": 1,
        "encoder_len_fill_value": 0,
        "num_tokens_per_bs": BLOCK,
        "cache_loc_dtype": torch.int64,
        "enable_mamba_track": False,
    }
    assert not set(wanted) & set(arguments)
    made = module.DecodeInputBuffers.create(**arguments)
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

    def replay_prepare(self, target, forward_batch) -> None:
        target.populate_from_forward_batch(
            forward_batch=forward_batch,
            raw_bs=BS,
            raw_num_token=BS * BLOCK,
            bs=BS,
            seq_len_fill_value=1,
            require_gathered_buffer=False,
            num_tokens_per_bs=BLOCK,
            nsa_enable_prefill_cp=False,
            enable_num_token_non_padded_flag=True,
        )


CASES = {
    "healthy": lambda: batch(),
    "positions": lambda: batch(positions=None),
    "padded_count": lambda: batch(num_token_non_padded=None),
    "two": lambda: batch(input_ids=None, out_cache_loc=None),
    "width": lambda: batch(tokens=TREE, mrope_positions=None),
}


def outcome(module, case: str, draft: bool) -> dict[str, object]:
    target, said = buffers(module), io.StringIO()
    error = None
    with contextlib.redirect_stderr(said):
        try:
            Runner(draft).replay_prepare(target, CASES[case]())
        except Exception as raised:
            error = [type(raised).__name__, str(raised)]
    names = (
        "input_ids",
        "req_pool_indices",
        "seq_lens",
        "out_cache_loc",
        "positions",
        "num_token_non_padded",
    )
    result = {name: getattr(target, name).tolist() for name in (*names, "mrope_positions")}
    return {"error": error, "said": said.getvalue(), "result": result}


def cost_us(check) -> float:
    """Microseconds per replay of the check alone, for six fields."""
    pairs = [(torch.zeros(8), torch.zeros(8)) for _ in range(5)] + [(torch.zeros(1), torch.tensor(1.0))]
    dsts, srcs = [a for a, _ in pairs], [b for _, b in pairs]
    rounds = 20000
    begun = time.perf_counter()
    for _ in range(rounds):
        check(dsts, srcs)
    return (time.perf_counter() - begun) / rounds * 1e6


def main() -> None:
    import sglang.srt.model_executor.cuda_graph_runner as stock

    patched, at_import = load(sys.argv[1])
    answer = {
        "wheel": {case: outcome(stock, case, draft=True) for case in CASES},
        "patched": {case: outcome(patched, case, draft=True) for case in CASES},
        "target": outcome(patched, "positions", draft=False),
        "at_import": at_import,
        "cost_us": cost_us(patched._ddtool_graph_copy),
    }
    print("RESULT " + json.dumps(answer))


main()
