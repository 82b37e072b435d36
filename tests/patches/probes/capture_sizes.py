"""SGLang's own choice of batch sizes, for the parallel settings that a server with eight ranks can have."""

from __future__ import annotations

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import fakes
from fakes import BLOCK, TREE

SIZES = [1, 2, 4, 8, 12, 16]


def choose(
    modules: dict[str, ModuleType], width: int, gathered: bool, cp: int, overlap: bool, pool: int
) -> Any:
    from sglang.srt.utils import common

    (module,) = modules.values()
    parallel = SimpleNamespace(attn_tp_size=8, attn_cp_size=cp, tp_rank=fakes.RANK)
    config = SimpleNamespace(decode=SimpleNamespace(bs=list(SIZES)))
    execution = SimpleNamespace(
        graph=SimpleNamespace(cuda_graph_config=config, torch_compile_max_bs=0),
        overlap=SimpleNamespace(enable_two_batch_overlap=overlap),
    )
    arguments = SimpleNamespace(
        cuda_graph_bs=list(SIZES),
        cuda_graph_config=config,
        enable_two_batch_overlap=overlap,
        enable_torch_compile=False,
        torch_compile_max_bs=0,
    )
    settings = {
        "get_parallel": lambda: parallel,
        "get_exec": lambda: execution,
        "get_flags": lambda: SimpleNamespace(capture=SimpleNamespace(enable_torch_compile=False)),
        "get_attention_tp_size": lambda: 8,
        "get_attention_cp_size": lambda: cp,
        "require_mlp_tp_gather": lambda *_: False,
        "require_attn_tp_gather": lambda *_: gathered,
        "DllmConfig": SimpleNamespace(from_server_args=lambda _: None),
    }
    runner = fakes.model_runner(False, server_args=arguments, req_to_token_pool=SimpleNamespace(size=pool))
    with contextlib.ExitStack() as stack:
        for place in (module, common):
            stack.enter_context(fakes.replaced(place, **settings))
        return module.get_batch_sizes_to_capture(runner, width)


def case(
    width: int, *, gathered: bool = False, cp: int = 1, overlap: bool = False, pool: int = 48, times: int = 1
) -> Any:
    def run(modules: dict[str, ModuleType]) -> Any:
        return [choose(modules, width, gathered, cp, overlap, pool) for _ in range(times)][-1]

    return run


CASES = {
    "plain": case(TREE),
    "gathered": case(TREE, gathered=True),
    "gathered_block": case(BLOCK, gathered=True),
    "context_parallel": case(TREE, cp=2),
    "two_batches": case(TREE, overlap=True),
    "small_pool": case(BLOCK, pool=9),
    "repeated": case(TREE, times=3),
}
EVENTS = {name: ["sizes"] for name in CASES}
