"""The tree builder alone, captured in a CUDA graph: microseconds a batch. And the walk, the same way.

    python3 tests/gpu/builder.py --commit SHA [--device cpu]

On a CPU there is no graph; the paper's heap, plain Python, is timed beside the builder there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import cells
import torch

VOCABULARY = 163840
SAMPLES, REPLAYS = 21, 100


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--length", type=int, default=7, help="positions drafted")
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--budgets", nargs="+", type=int, default=[16, 32, 64])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16, 32])
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, f"builder-{options.device}")
    for budget in options.budgets:
        for batch in options.batches:
            for seed in (False, True):
                name = f"b{budget}-n{batch}{'-seed' if seed else ''}"
                if done.missing([name]):
                    done.write(name, measure(options, budget, batch, seed))
                cell = done.read(name)
                print(name, {key: value for key, value in cell.items() if key.endswith("_us")}, flush=True)


def measure(options: argparse.Namespace, budget: int, batch: int, seed: bool) -> dict[str, Any]:
    from ddtool_engine.core.trees import TreeBuilder
    from ddtool_engine.core.walk import accept

    log_probs, ids, roots = draft(batch, options.length, options.topk)
    builder = TreeBuilder(options.length, options.topk, budget, seed, options.device)
    inputs = [tensor.to(options.device) for tensor in (log_probs, ids, roots)]
    trees = builder(*inputs)
    choices = trees.tokens.roll(-1, 1).contiguous()
    expected = TreeBuilder(options.length, options.topk, budget, seed, "cpu")(log_probs, ids, roots)
    for mine, theirs in zip(trees, expected, strict=True):
        assert torch.equal(mine.cpu(), theirs), "the device built another tree than the CPU"
    timed = graphed if options.device == "cuda" else eager
    result = {
        "shape": {
            "length": options.length,
            "topk": options.topk,
            "budget": budget,
            "batch": batch,
            "seed": seed,
        },
        "build_us": timed(lambda: builder(*inputs)),
        "walk_us": timed(lambda: accept(trees, choices, options.length)),
    }
    return (
        result
        if options.device == "cuda"
        else {**result, "heap_us": eager(lambda: heaps(log_probs, budget, seed))}
    )


def draft(batch: int, length: int, topk: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A drafter that is right in about three of four positions."""
    generator = torch.Generator().manual_seed(batch)
    logits = torch.randn(batch, length, topk, generator=generator)
    logits[..., 0] += 4
    log_probs = logits.log_softmax(2).sort(2, descending=True).values
    ids = torch.stack([torch.randperm(VOCABULARY, generator=generator)[:topk] for _ in range(batch * length)])
    return log_probs, ids.view(batch, length, topk), torch.arange(batch)


def graphed(call: Callable[[], object]) -> float:
    """Median microseconds of one replay; a sample is many replays between two events."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    samples = []
    for _ in range(SAMPLES):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1000 / REPLAYS)
    return round(median(samples[1:]), 2)


def eager(call: Callable[[], object]) -> float:
    samples = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e6)
    return round(median(samples[1:]), 1)


def heaps(log_probs: torch.Tensor, budget: int, seed: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.best_first import best_first, exact_costs

    for one in log_probs.tolist():
        best_first(exact_costs(one), budget, seed)


if __name__ == "__main__":
    main()
