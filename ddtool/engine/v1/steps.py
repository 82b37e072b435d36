"""A round's work on trees between the two forwards: growing them, and following the target down them.

Some 40 tiny kernels. Launched one by one they cost a small model more than its verify forward; so on a GPU each of the
two steps is captured once per batch size and replayed as one graph. Elsewhere they are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from ..core.trees import TreeBuilder, Trees
from ..core.walk import accept
from .arguments import TreeShape

_T = TypeVar("_T")


class Grown(NamedTuple):
    """trees: as core makes them. positions: [bs, W] int64, of every node in its request's text."""

    trees: Trees
    positions: torch.Tensor


class Followed(NamedTuple):
    """nodes: [bs, L + 1] int64, accepted paths, root first.

    gained: [bs, L + 2] int64, the target's tokens along the path; the last column counts the drafted ones among them.
    """

    nodes: torch.Tensor
    gained: torch.Tensor


class TreeSteps:
    """graphs: capture the steps (the device is a GPU). Results are valid until the same step runs again."""

    def __init__(self, shape: TreeShape, device: torch.device | str, *, graphs: bool) -> None:
        self._builder = TreeBuilder(shape.depth, shape.topk, shape.budget, shape.chain_seed, device)
        self._depth = shape.depth
        self._graphs = graphs
        self._captured: dict[int, _Captured] = {}

    def grow(
        self, logprobs: torch.Tensor, ids: torch.Tensor, roots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Grown:
        """logprobs, ids: [bs, L, K] of the drafter. roots: [bs], last tokens; seq_lens: [bs], where they stand."""
        if not self._graphs:
            return self._grow(logprobs, ids, roots, seq_lens)
        requests = len(roots)
        if requests not in self._captured:
            self._captured[requests] = _Captured(self, logprobs, ids, roots, seq_lens)
        return self._captured[requests].grow(logprobs, ids, roots, seq_lens)

    def follow(self, trees: Trees, choice: torch.Tensor) -> Followed:
        """choice: [bs, W], the target's token at every node of the trees that `grow` returned last."""
        if not self._graphs:
            return self._follow(trees, choice)
        return self._captured[len(choice)].follow(choice)

    def _grow(
        self, logprobs: torch.Tensor, ids: torch.Tensor, roots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Grown:
        trees = self._builder(logprobs, ids, roots)
        return Grown(trees, seq_lens[:, None] + trees.depths)

    def _follow(self, trees: Trees, choice: torch.Tensor) -> Followed:
        nodes, lengths = accept(trees, choice, self._depth)
        return Followed(nodes, torch.cat([choice.gather(1, nodes), lengths[:, None]], dim=1))


@dataclass
class _Step:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[torch.Tensor, ...]

    def replay(self, *given: torch.Tensor) -> None:
        for static, tensor in zip(self.inputs, given, strict=True):
            static.copy_(tensor)
        self.graph.replay()


class _Captured:
    """Both steps for one batch size; the second reads the trees that the first leaves in place."""

    def __init__(self, steps: TreeSteps, *example: torch.Tensor) -> None:
        inputs = tuple(tensor.clone() for tensor in example)
        graph, self._grown = _capture(lambda: steps._grow(*inputs))
        self._grow = _Step(graph, inputs)
        choice = self._grown.trees.tokens.clone()
        graph, self._followed = _capture(lambda: steps._follow(self._grown.trees, choice))
        self._follow = _Step(graph, (choice,))

    def grow(self, *given: torch.Tensor) -> Grown:
        self._grow.replay(*given)
        return self._grown

    def follow(self, choice: torch.Tensor) -> Followed:
        self._follow.replay(choice)
        return self._followed


def _capture(call: Callable[[], _T]) -> tuple[torch.cuda.CUDAGraph, _T]:
    """`call` as a graph, and the tensors in which every replay leaves its result."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        call()  # lets kernels load and libraries allocate, which a capture forbids
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # thread_local: other threads of the scheduler may use the device meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = call()
    return graph, result
