"""The calls that `diag_cost` times, and its child: one release on a CPU, SGLang's own function and the patched one.

A call is SGLang's whole function with a healthy service's input. What surrounds it is a stand-in, as in the patches'
tests (`tests/patches/probes`), so the difference of the two is the patch's, and their ratio is none of a service.

argv: a JSON file {release, run, repeats, patches: {name: {file of site-packages: path of its patched version}}}.
Prints `RESULT ` and {torch, threads, patches: {patch: {call: {calls, us: {arm: [median of each repeat]}}}}}.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Call = Callable[[], object]
Modules = dict[str, ModuleType]
TESTS = Path(__file__).resolve().parents[1] / "tests"
UNIT = "diag-cost"
RUNNER = "sglang/srt/model_executor/model_runner.py"
VERIFY_ROWS, VOCABULARY = 33, 163_840  # one request's tree of budget 32; float32 logits


def only(modules: Modules) -> ModuleType:
    (module,) = modules.values()
    return module


def forgetful(module: ModuleType, function: str, memory: str, call: Call) -> Call:
    """`call`, before which the patch forgets what it has told, so that each call writes its lines."""
    if not hasattr(module, function):
        return call
    told = inspect.getclosurevars(getattr(module, function)).nonlocals[memory]

    def anew() -> object:
        told.clear()
        return call()

    return anew


def capture_sizes(modules: Modules, _: ExitStack) -> Call:
    import capture_sizes as probe
    from fakes import TREE

    def call() -> object:
        return probe.choose(modules, TREE, gathered=True, cp=1, overlap=False, pool=48)

    return forgetful(only(modules), "_ddtool_capture_sizes", "told", call)


def graph_width_init(modules: Modules, stack: ExitStack) -> Call:
    import fakes
    import fix_graph_width as probe

    kind = only(modules).CudaGraphRunner
    worker = probe.worker(draft=True, algorithm="DFLASH", given=fakes.BLOCK, budget=None)
    stack.enter_context(probe.v1_world(only(modules), []))
    made = object.__new__(kind)
    return lambda: fakes.until_stopped(lambda: kind.__init__(made, worker))


def non_padded(experts_spread: bool) -> Callable[[Modules, ExitStack], Call]:
    def prepare(modules: Modules, stack: ExitStack) -> Call:
        import fakes
        import fix_num_token_non_padded as probe
        from sglang.srt.model_executor import forward_batch_info

        module, seen = only(modules), []
        stand_ins = {"assign_req_to_token_pool_func": lambda *_, **__: None}
        ranks = 1 + experts_spread
        stack.enter_context(
            fakes.replaced(forward_batch_info, get_moe_expert_parallel_world_size=lambda: ranks)
        )
        stack.enter_context(fakes.replaced(module, **stand_ins))
        worker, (batch, given) = probe.worker(seen), probe.round_of()
        batch.batch_size = lambda: probe.REQUESTS
        method = module.DFlashWorker._prepare_for_speculative_decoding
        return lambda: fakes.until_stopped(lambda: method(worker, batch, given))

    return prepare


def replay_guard(modules: Modules, _: ExitStack) -> Call:
    import fix_replay_guard as probe

    method, runner, batch = only(modules).CudaGraphRunner.can_run, probe.graph_runner(), probe.batch()
    return lambda: method(runner, batch)


def graph_copy(modules: Modules, _: ExitStack) -> Call:
    """With the lists that SGLang's own caller makes of a batch."""
    import fakes
    import graph_copy as probe

    module, given = only(modules), []
    with fakes.replaced(module, _grouped_foreach_copy_=lambda *lists: given.append(lists)):
        probe.Runner(draft=True).replay_prepare(probe.buffers(module), probe.batch())
    ((dsts, srcs),) = given
    return lambda: module._grouped_foreach_copy_(dsts, srcs)


def graph_shapes(modules: Modules, stack: ExitStack) -> Call:
    import fakes
    import graph_copy
    import graph_shapes as probe

    module, runner, batch = only(modules), probe.graph_runner(draft=True), fakes.batch()
    runner.buffers = graph_copy.buffers(module)
    stack.enter_context(fakes.replaced(module, enable_num_token_non_padded=lambda *_: False))
    return lambda: module.CudaGraphRunner.replay_prepare(runner, batch)


def graph_slots(modules: Modules, _: ExitStack) -> Call:
    import graph_slots as probe

    runner, batch = probe.GraphRunner(only(modules), draft=True), probe.full()
    return lambda: runner.load_batch(batch)


def start(modules: Modules, _: ExitStack) -> Call:
    """A worker's start: it loads, allocates and captures; three marks."""
    import runner as probe

    method, worker = probe.method(only(modules), "initialize"), probe.runner(only(modules))
    return forgetful(only(modules), "_ddtool_mem_marks", "seen", lambda: method(worker, 0.0))


def forward(verifies: bool) -> Callable[[Modules, ExitStack], Call]:
    """ModelRunner.forward as it is, around a pass that takes no time."""

    def prepare(modules: Modules, _: ExitStack) -> Call:
        import fakes
        import torch

        logits = torch.randn(VERIFY_ROWS, VOCABULARY) if verifies else None
        output = SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=logits))
        worker = fakes.model_runner(False, forward_pass_id=0, msprobe_debugger=None, eplb_manager=None)
        vars(worker).update(gpu_id=0, device="cpu", dp_size=1, enable_elastic_ep=False, graph_runner=None)
        worker.server_args = SimpleNamespace(disable_overlap_schedule=False, elastic_ep_backend=None)
        worker._forward_raw = lambda *_: output
        method, batch = modules[RUNNER].ModelRunner.forward, fakes.batch(VERIFY_ROWS, rids=["one"])
        return lambda: method(worker, batch)

    return prepare


# {patch: {what is called: (how the call is made ready, its calls in a repeat)}}
CALLS: dict[str, dict[str, tuple[Callable[[Modules, ExitStack], Call], int]]] = {
    "capture-sizes": {"get_batch_sizes_to_capture, one line": (capture_sizes, 300)},
    "fix-graph-width": {"CudaGraphRunner.__init__, up to the width": (graph_width_init, 100)},
    "fix-num-token-non-padded": {
        "a draft round": (non_padded(False), 200),
        "a draft round, experts spread over ranks": (non_padded(True), 200),
    },
    "fix-replay-guard": {"CudaGraphRunner.can_run": (replay_guard, 1000)},
    "graph-copy": {"_grouped_foreach_copy_": (graph_copy, 2000)},
    "graph-shapes": {"CudaGraphRunner.replay_prepare": (graph_shapes, 500)},
    "graph-slots": {"CudaGraphBufferRegistry.fill_from": (graph_slots, 1000)},
    "mem-marks": {
        "ModelRunner.forward": (forward(False), 2000),
        "ModelRunner.initialize, three lines": (start, 50),
    },
    "nan-guard": {
        f"ModelRunner.forward, {VERIFY_ROWS} x {VOCABULARY} float32": (forward(True), 20),
        "ModelRunner.forward, no logits": (forward(False), 2000),
    },
}


def medians(arms: dict[str, Call], calls: int) -> dict[str, float]:
    """Microseconds of a call of each arm, whose calls take turns one by one."""
    took: dict[str, list[int]] = {name: [] for name in arms}
    order = list(arms.items())
    gc.collect()
    gc.disable()
    for _ in range(calls):
        order.append(order.pop(0))
        for name, arm in order:
            begun = time.perf_counter_ns()
            arm()
            took[name].append(time.perf_counter_ns() - begun)
    gc.enable()
    return {name: statistics.median(values) / 1000 for name, values in took.items()}


def measure(name: str, files: dict[str, str], repeats: int) -> dict[str, Any]:
    """`again` is SGLang's own function a second time: what the two differ by is noise."""
    from support import patch_child

    found = {}
    for what, (prepare, calls) in CALLS[name].items():
        with ExitStack() as stack:
            stock = stack.enter_context(patch_child.modules_of(files, False, io.StringIO()))
            arms = {arm: prepare(stock, stack) for arm in ("stock", "again")}
            arms["patched"] = prepare(
                stack.enter_context(patch_child.modules_of(files, True, io.StringIO())), stack
            )
            for arm in arms.values():
                for _ in range(5):
                    arm()
            rows = [medians(arms, calls) for _ in range(repeats)]
        found[what] = {
            "calls": calls,
            "us": {arm: [round(row[arm], 3) for row in rows] for arm in arms},
        }
    return found


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    os.environ.update(DDTOOL_UNIT=UNIT, DDTOOL_RUN=request["run"], PROBED_RELEASE=request["release"])
    sys.path[:0] = [str(TESTS), str(TESTS / "patches/probes")]
    from support import patch_child

    sys.meta_path.append(patch_child.StandIns())
    with open(os.devnull, "w") as silence, contextlib.redirect_stderr(silence):
        found = {name: measure(name, files, request["repeats"]) for name, files in request["patches"].items()}
    import torch

    print(
        "RESULT "
        + json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "patches": found})
    )


if __name__ == "__main__":
    main()
