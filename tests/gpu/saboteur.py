"""A plugin for SGLang that brings two known crashes about. `faults.py` installs it, for its own servers only.

GPU_FAULT=none-copy       the draft worker's batch reaches its graph with positions None
GPU_FAULT=narrow-graph    the target's graphs are captured for the drafter's block, as if nobody had widened them
GPU_FAULT=no-fault        nothing, for comparison
GPU_FAULT_GUARD=off       and the engine's guard before the replay is blind
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

RUNNER = "sglang.srt.model_executor.cuda_graph_runner.CudaGraphRunner"


def load() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    fault = os.environ["GPU_FAULT"]
    if fault == "none-copy":
        HookRegistry.register(f"{RUNNER}.replay", lose_positions, HookType.AROUND)
    elif fault == "narrow-graph":
        HookRegistry.register(f"{RUNNER}.__init__", capture_narrow, HookType.AROUND)
    elif fault != "no-fault":
        raise ValueError(f"GPU_FAULT={fault!r}")
    if os.environ.get("GPU_FAULT_GUARD") == "off":
        from ddtool_engine.v1 import guard

        guard.NAME = "the guard looks for an algorithm of this name"


def lose_positions(
    original: Callable[..., Any], runner: Any, forward_batch: Any, *args: Any, **kwargs: Any
) -> Any:
    if runner.model_runner.is_draft_worker:
        forward_batch.positions = None
    return original(runner, forward_batch, *args, **kwargs)


def capture_narrow(
    original: Callable[..., None], runner: Any, model_runner: Any, *args: Any, **kwargs: Any
) -> None:
    if model_runner.is_draft_worker:
        return original(runner, model_runner, *args, **kwargs)
    with narrow(model_runner.server_args, "speculative_num_draft_tokens", model_runner):
        return original(runner, model_runner, *args, **kwargs)


@contextmanager
def narrow(server_args: Any, name: str, model_runner: Any) -> Iterator[None]:
    """While graphs are captured, arguments and attention backend agree on the block; afterwards on the tree again."""
    wide, block, backend = (
        getattr(server_args, name),
        server_args.ddtree_shape.block,
        model_runner.attn_backend,
    )
    setattr(server_args, name, block)
    backend.num_draft_tokens = block
    try:
        yield
    finally:
        setattr(server_args, name, wide)
        backend.num_draft_tokens = wide
