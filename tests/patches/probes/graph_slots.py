"""The registry's own fill, from a graph runner that hands it batches with and without a field, on CPU tensors."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import fakes
import torch
from fakes import BLOCK

FILE = "sglang/srt/model_executor/cuda_graph_buffer_registry.py"
COUNT = torch.tensor(BLOCK, dtype=torch.int32)


class GraphRunner:
    """Stands where the decode graph runner stands in the call stack."""

    capture_forward_mode = "TARGET_VERIFY"

    def __init__(self, module: ModuleType, draft: bool, share: dict[str, Any] | None = None) -> None:
        self.model_runner = fakes.model_runner(draft)
        self.registry = module.build_decode_registry(
            device=torch.device("cpu"),
            max_bs=4,
            max_num_token=4 * BLOCK,
            seq_len_fill_value=1,
            cache_loc_dtype=torch.int64,
            enable_num_token_non_padded=True,
            share_pool=False,
        )
        for name, slot in (share or {}).items():  # as share_input_buffer does it by name
            self.registry.get_slot(name).buffer = slot.buffer

    def load_batch(self, batch: SimpleNamespace) -> None:
        self.registry.fill_from(
            batch,
            raw_bs=1,
            padded_bs=2,
            raw_num_tokens=BLOCK,
            padded_num_tokens=2 * BLOCK,
            pp_proxy_tensors=None,
        )

    def result(self) -> dict[str, Any]:
        return {name: self.registry.get_slot(name).buffer.tolist() for name in self.registry.slot_names()}


class EagerRunner(GraphRunner):
    capture_forward_mode = property(doc="an eager runner has none")  # type: ignore[assignment]


def full(**changes: object) -> SimpleNamespace:
    counts = {"num_token_non_padded": COUNT, "global_num_token_non_padded": COUNT}
    return fakes.batch(**{**counts, **changes})


def healthy(modules: dict[str, ModuleType]) -> Any:
    runner = GraphRunner(modules[FILE], draft=True)
    for _ in range(3):
        runner.load_batch(full())
    return runner.result()


def lost(modules: dict[str, ModuleType]) -> Any:
    """A field that came with the first batch does not come with the next ones."""
    runner = GraphRunner(modules[FILE], draft=True)
    for batch in (full(), full(positions=None), full(positions=None)):
        runner.load_batch(batch)
    return runner.result()


def never(modules: dict[str, ModuleType]) -> Any:
    """The missing field of a draft batch that was built by hand, where nobody else fills the buffer."""
    runner = GraphRunner(modules[FILE], draft=True)
    runner.load_batch(fakes.batch())
    return runner.result()


def shared(modules: dict[str, ModuleType]) -> Any:
    """The same, in a buffer that the target's runner fills: the draft's graph reads the target's count."""
    target = GraphRunner(modules[FILE], draft=False)
    draft = GraphRunner(modules[FILE], draft=True, share=target.registry._slots)
    target.load_batch(full(num_token_non_padded=COUNT * 33, global_num_token_non_padded=COUNT * 33))
    draft.load_batch(fakes.batch())
    return draft.result()


def optional(modules: dict[str, ModuleType]) -> Any:
    """A field that some models never have is only missed once it was there."""
    runner = GraphRunner(modules[FILE], draft=False)
    runner.load_batch(full())
    runner.load_batch(full(mrope_positions=torch.ones(3, BLOCK, dtype=torch.int64)))
    runner.load_batch(full())
    return runner.result()


def eager(modules: dict[str, ModuleType]) -> Any:
    """No graph, so nothing reads what is left in the buffers."""
    runner = EagerRunner(modules[FILE], draft=True)
    for batch in (full(), full(positions=None)):
        runner.load_batch(batch)
    return runner.result()


CASES = {
    "healthy": healthy,
    "lost": lost,
    "never": never,
    "shared": shared,
    "optional": optional,
    "eager": eager,
}
EVENTS = {
    "healthy": [],
    "lost": ["stale"],
    "never": ["stale"],
    "shared": ["stale"],
    "optional": ["stale"],
    "eager": [],
}
