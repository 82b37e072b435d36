"""A round's work on trees between the two forwards: growing them, and following the target down them.

Some 80 tiny kernels. Launched one by one they cost a small model more than its verify forward; so on a GPU each of the
two steps is captured once per batch size and replayed as one graph. Elsewhere they are called as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch

from ..core.commit import plan_commit
from ..core.trees import TreeBuilder, Trees
from ..core.walk import accept
from .arguments import TreeShape
from .head import ShardedTopK
from .mask import MaskBuffer

_T = TypeVar("_T")


class Grown(NamedTuple):
    """trees: as core makes them. positions: [bs, W] int64, of every node in its request's text.

    logprobs, ids: [bs, L, K], what they were grown from.
    """

    trees: Trees
    positions: torch.Tensor
    logprobs: torch.Tensor
    ids: torch.Tensor


class Kept(NamedTuple):
    """What stays of a verify forward when each request keeps the first `counts` [bs] nodes of its path.

    rows: [bs * W], rows of the forward, slots: [bs * W], their KV slots; those kept come first, in the order (request,
    path), then all others. How many are kept is the host's to know. seq_lens: [bs], the new lengths.
    """

    counts: torch.Tensor
    rows: torch.Tensor
    slots: torch.Tensor
    seq_lens: torch.Tensor


class Followed(NamedTuple):
    """nodes: [bs, L + 1] int64, accepted paths, root first; kept: what stays when no request ends inside its path.

    gained: [bs, L + 2] int64, the target's tokens along the path; the last column counts the drafted ones among them.
    bonus: [bs] int64, the last of the gained tokens.
    """

    nodes: torch.Tensor
    kept: Kept
    gained: torch.Tensor
    bonus: torch.Tensor


def keep(nodes: torch.Tensor, counts: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor) -> Kept:
    """nodes: [bs, L + 1], paths. counts: [bs]. slots: [bs, W], of the forward. seq_lens: [bs], before it."""
    plan = plan_commit(nodes, counts, slots.numel(), slots, seq_lens)
    return Kept(counts.to(torch.int32), plan.rows, plan.kept, plan.seq_lens)


class TreeSteps:
    """`grow` before the target's forward, `follow` after it; results are valid until the same step runs again.

    graphs_up_to: the largest batch whose steps are captured; 0 for none. The batch's mask must be reserved by then.
    """

    def __init__(self, shape: TreeShape, head: ShardedTopK, mask: MaskBuffer, *, graphs_up_to: int) -> None:
        self._builder = TreeBuilder(shape.depth, shape.topk, shape.budget, shape.chain_seed, head.device)
        self._head, self._mask, self._depth = head, mask, shape.depth
        self._graphs_up_to = graphs_up_to
        self._captured: dict[int, _Captured] = {}

    def grow(self, hidden: torch.Tensor, roots: torch.Tensor, seq_lens: torch.Tensor) -> Grown:
        """Draft trees and write their mask.

        hidden: [bs, L, H] of the drafter. roots: [bs], last tokens; seq_lens: [bs], where they stand.
        """
        # A head that gathers over ranks stays outside: only SGLang may capture its collectives
        source = (hidden,) if self._head.is_local else self._candidates(hidden)
        if not self._replays(len(roots)):
            return self._grow(source, roots, seq_lens)
        if len(roots) not in self._captured:
            self._captured[len(roots)] = _Captured(self, source, roots, seq_lens)
        return self._captured[len(roots)].grow(*source, roots, seq_lens)

    def follow(
        self, trees: Trees, choice: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Followed:
        """choice: [bs, W], the target's token at every node of the trees that `grow` returned last.

        slots: [bs, W], where the forward put each node's keys and values. seq_lens: as `grow` got them.
        """
        if not self._replays(len(choice)):
            return self._follow(trees, choice, slots, seq_lens)
        return self._captured[len(choice)].follow(choice, slots)

    def _replays(self, requests: int) -> bool:
        return requests <= self._graphs_up_to and self._mask.is_shared

    def _candidates(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and token ids, [bs, L, K] each."""
        requests, depth, _ = hidden.shape
        logprobs, ids = self._head(hidden.flatten(0, 1))
        return logprobs.view(requests, depth, -1), ids.view(requests, depth, -1)

    def _grow(self, source: tuple[torch.Tensor, ...], roots: torch.Tensor, seq_lens: torch.Tensor) -> Grown:
        """source: hidden states, or candidates."""
        logprobs, ids = self._candidates(*source) if len(source) == 1 else source
        trees = self._builder(logprobs, ids, roots)
        self._mask.write(trees.visible, seq_lens)
        return Grown(trees, seq_lens[:, None] + trees.depths, logprobs, ids)

    def _follow(
        self, trees: Trees, choice: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Followed:
        nodes, lengths = accept(trees, choice, self._depth)
        said = choice.gather(1, nodes)
        kept = keep(nodes, lengths + 1, slots, seq_lens)
        # the path repeats its last node to the end, and so the last column is what the target says there
        return Followed(nodes, kept, torch.cat([said, lengths[:, None]], dim=1), said[:, -1].clone())


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

    def __init__(
        self, steps: TreeSteps, source: tuple[torch.Tensor, ...], roots: torch.Tensor, seq_lens: torch.Tensor
    ) -> None:
        inputs = tuple(tensor.clone() for tensor in (*source, roots, seq_lens))
        graph, self._grown = _capture(lambda: steps._grow(inputs[:-2], *inputs[-2:]))
        self._grow = _Step(graph, inputs)
        choice, slots = self._grown.trees.tokens.clone(), self._grown.trees.tokens.clone()
        graph, self._followed = _capture(lambda: steps._follow(self._grown.trees, choice, slots, inputs[-1]))
        self._follow = _Step(graph, (choice, slots))

    def grow(self, *given: torch.Tensor) -> Grown:
        self._grow.replay(*given)
        return self._grown

    def follow(self, choice: torch.Tensor, slots: torch.Tensor) -> Followed:
        self._follow.replay(choice, slots)
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
