"""The graph runner's own question whether a batch can be replayed, for batches that fit the graph and that do not."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import fakes
from fakes import BLOCK, RUNNER_V1, TREE


def can_run(modules: dict[str, ModuleType], verifies: bool = True, **changes: Any) -> bool:
    ((file, module),) = modules.items()
    method = (
        module.CudaGraphRunner.can_run if file == RUNNER_V1 else module.DecodeCudaGraphRunner.can_run_graph
    )
    return bool(method(graph_runner(verifies), batch(**changes)))


def batch(**changes: Any) -> SimpleNamespace:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

    return fakes.batch(capture_hidden_mode=CaptureHiddenMode.NULL, **changes)


def graph_runner(verifies: bool = True) -> MagicMock:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode

    runner = MagicMock(num_tokens_per_bs=BLOCK, max_bs=4, require_mlp_tp_gather=False, disable_padding=False)
    runner.configure_mock(require_mlp_sync=False, is_encoder_decoder=False, enable_two_batch_overlap=False)
    runner.configure_mock(capture_hidden_mode=CaptureHiddenMode.NULL, enable_pdmux=False)
    runner.capture_forward_mode = ForwardMode.TARGET_VERIFY if verifies else ForwardMode.DECODE
    runner.model_runner = MagicMock(**vars(fakes.model_runner(True)))
    runner.model_runner.spec_algorithm.is_ngram = lambda: False
    return runner


def case(**changes: Any) -> Any:
    return lambda modules: can_run(modules, **changes)


CASES = {
    "healthy": case(),
    "two": case(requests=2, tokens=2 * BLOCK),
    "too_many": case(requests=5, tokens=5 * BLOCK),
    "decode": case(verifies=False, tokens=1),
    "wide": case(tokens=TREE),
}
EVENTS = {"healthy": [], "two": [], "too_many": [], "decode": [], "wide": ["eager"]}
