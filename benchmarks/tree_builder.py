"""The batched tree builder against a heap, in one run: `python benchmarks/tree_builder.py`.

heap: the paper's (arXiv 2604.12989) as one would write it for speed, plain Python, one request after the other; ranks,
  depths and parents as lists
heap+: the same, and then what a verify forward needs: tokens, parents, depths and the ancestor mask as tensors there
builder: ours; all of that as well
graph: the builder as a captured CUDA graph

All start from log-probabilities where they are, so on a GPU the heap's time has the copy to the host. The arms
alternate; medians.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from ddtool.engine.core.layout import sees_always, visibility
from ddtool.engine.core.trees import TreeBuilder, Trees


def heap_tree(log_probs: list[list[float]], budget: int) -> tuple[list[int], list[int], list[int]]:
    """Ranks, depths and parents (row 0 is the root) of the best `budget` nodes."""
    ranks, depths, parents = [0], [0], [-1]
    heap = [(-log_probs[0][0], 0, 1, 0)]
    last, topk = len(log_probs), len(log_probs[0])
    while heap and len(ranks) <= budget:
        cost, parent, depth, rank = heapq.heappop(heap)
        row = len(ranks)
        ranks.append(rank)
        depths.append(depth)
        parents.append(parent)
        choices = log_probs[depth - 1]
        if rank + 1 < topk:
            heapq.heappush(heap, (cost + choices[rank] - choices[rank + 1], parent, depth, rank + 1))
        if depth < last:
            heapq.heappush(heap, (cost - log_probs[depth][0], row, depth + 1, 0))
    return ranks, depths, parents


def heap_tensors(log_probs: Tensor, ids: Tensor, roots: Tensor, budget: int) -> Trees:
    """The heap's trees where the forward wants them."""
    trees = [heap_tree(values, budget) for values in log_probs.tolist()]
    ranks, depths, parents = torch.tensor(trees, device=roots.device).unbind(1)
    tokens = ids.flatten(1).gather(1, (depths - 1).clamp_min(0) * ids.shape[2] + ranks)
    tokens[:, 0] = roots
    upward = parents.clamp_min(0)
    lineage = [upward]
    for _ in range(ids.shape[1] - 2):
        lineage.append(upward.gather(1, lineage[-1]))
    always = sees_always(budget + 1, budget, roots.device)
    return Trees(tokens, parents, depths, ranks, visibility(always, torch.stack(lineage, 2)))


def captured(build: Callable[[], object]) -> Callable[[], None]:
    """`build` as a CUDA graph's replay."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            build()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        build()
    return graph.replay


def milliseconds(arms: dict[str, Callable[[], object]], rounds: int, on_gpu: bool) -> dict[str, float]:
    """Median time of each arm, the arms alternating."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for count in range(rounds + 5):
        for name, arm in arms.items():
            if on_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
            arm()
            if on_gpu:
                torch.cuda.synchronize()
            if count >= 5:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def compare(batch: int, args: argparse.Namespace, device: str) -> None:
    torch.manual_seed(0)
    top = (2 * torch.randn(batch, args.length, 512)).log_softmax(-1).topk(args.topk)
    log_probs, ids = top.values.to(device), top.indices.to(device)
    roots = torch.zeros(batch, dtype=torch.int64, device=device)
    builder = TreeBuilder(args.length, args.topk, args.budget, args.chain_seed, device)

    def build() -> object:
        return builder(log_probs, ids, roots)

    def by_heap() -> list[tuple[list[int], list[int], list[int]]]:
        return [heap_tree(values, args.budget) for values in log_probs.tolist()]

    def by_heap_as_tensors() -> object:
        return heap_tensors(log_probs, ids, roots, args.budget)

    arms: dict[str, Callable[[], object]] = {"heap": by_heap, "heap+": by_heap_as_tensors, "builder": build}
    if device == "cuda":
        arms["graph"] = captured(build)
    took = milliseconds(arms, args.rounds, device == "cuda")
    for name, time_ms in took.items():
        ratios = (
            ""
            if "heap" in name
            else f"   heap {took['heap'] / time_ms:5.1f} ×, heap+ {took['heap+'] / time_ms:5.1f} ×"
        )
        print(f"{device:4}  batch {batch:3}  {name:8} {time_ms:8.3f} ms{ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=7)
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--budget", type=int, default=32)
    parser.add_argument("--chain-seed", action="store_true")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    shape = f"length {args.length}, top-k {args.topk}, budget {args.budget}"
    print(
        f"torch {torch.__version__}, {args.threads} threads, {shape}, chain seed {'on' if args.chain_seed else 'off'}"
    )
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        for batch in args.batch:
            compare(batch, args, device)


if __name__ == "__main__":
    main()
