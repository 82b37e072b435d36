"""What the probes share: parts of a running SGLang that a patched function asks, and nothing of it is under test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

RELEASE = os.environ["PROBED_RELEASE"]
RANK = 3
BLOCK, TREE = 8, 33
GRAPHS = "sglang/srt/model_executor/"
NONE = (
    *(
        "out_cache_loc_swa",
        "mamba_track_indices",
        "mamba_track_mask",
        "encoder_lens",
        "mrope_positions",
        "lora_ids",
    ),
    *("input_embeds", "replace_embeds", "spec_info", "ngram_embedding_info"),
    *("num_token_non_padded", "global_num_token_non_padded", "global_num_token_non_padded_cpu"),
)
RUNNER_V1 = GRAPHS + "cuda_graph_runner.py"
RUNNER_V2 = GRAPHS + "runner/decode_cuda_graph_runner.py"


def model_runner(draft: bool, **more: Any) -> SimpleNamespace:
    """Enough of a ModelRunner to say who it is; where the rank stands depends on the release."""
    who = {"tp_rank": RANK} if RELEASE < "0.5.17" else {"tp_rank": None, "ps": SimpleNamespace(tp_rank=RANK)}
    return SimpleNamespace(is_draft_worker=draft, **who, **more)


def batch(tokens: int = BLOCK, requests: int = 1, **changes: object) -> SimpleNamespace:
    """A verify batch as the DFLASH worker hands it to the graph runner."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    fields: dict[str, object] = dict.fromkeys(NONE)
    fields |= {
        "batch_size": requests,
        "forward_mode": ForwardMode.TARGET_VERIFY,
        "input_ids": torch.arange(tokens),
        "req_pool_indices": torch.arange(2, 2 + requests),
        "seq_lens": torch.full((requests,), 40, dtype=torch.int32),
        "seq_lens_cpu": torch.full((requests,), 40, dtype=torch.int32),
        "seq_lens_sum": 40 * requests,
        "out_cache_loc": torch.arange(100, 100 + tokens),
        "positions": torch.arange(40, 40 + tokens),
        "needs_forward_metadata_init": lambda: True,
    }
    return SimpleNamespace(**{**fields, **changes})


@contextlib.contextmanager
def replaced(module: ModuleType | object, **values: Any) -> Iterator[None]:
    """Names of a module for the time of a case; those that it lacks are left alone."""
    before = {name: getattr(module, name) for name in values if hasattr(module, name)}
    for name in before:
        setattr(module, name, values[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


class Stop(Exception):
    """The function under test has done what the case is about."""


def until_stopped(call: Callable[[], object]) -> None:
    with contextlib.suppress(Stop):
        call()
        raise AssertionError("the function ended without coming to the place that was waited for")
