"""A round's work on trees around the target's forward: growing them, following the target down them, and giving the
drafter what was accepted.

Some 100 tiny kernels. Launched one by one they cost a small model more than its verify forward; so on a GPU each step
is a graph, captured at start-up for all batches up to the largest that the target has graphs for. Elsewhere they are
called as they are.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from ..core.commit import Kept, keep, path_rows
from ..core.trees import TreeBuilder, Trees
from ..core.walk import accept
from .arguments import TreeShape
from .graphs import Graphs, accounted
from .head import ShardedTopK
from .mask import MaskBuffer


class Grown(NamedTuple):
    """trees: as core makes them. positions: [bs, W] int64, of every node in its request's text.

    logprobs, ids: [bs, L, K], what they were grown from.
    """

    trees: Trees
    positions: torch.Tensor
    logprobs: torch.Tensor
    ids: torch.Tensor


class Path(NamedTuple):
    """Accepted paths as the drafter takes them, N = bs * (L + 1) rows; past its end a path repeats its last node.

    rows: [N], of the verify forward. positions: [N]. slots: [N], where target and drafter keep each node's keys.
    """

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor


class Followed(NamedTuple):
    """nodes: [bs, L + 1] int64, accepted paths, root first; kept: what stays when no request ends inside its path.

    gained: [bs, L + 2] int64, the target's tokens along the path; the last column counts the drafted ones among them.
    bonus: [bs] int64, the last of the gained tokens.
    """

    nodes: torch.Tensor
    path: Path
    kept: Kept
    gained: torch.Tensor
    bonus: torch.Tensor


class Context(Protocol):
    """The drafter's memory, a DraftContext: takes hidden states [N, features] of `dtype`; a row may come twice."""

    features: int
    dtype: torch.dtype

    def absorb(self, hidden: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None: ...


class TreeSteps:
    """`grow` before the target's forward, `follow` and `absorb` after it; results are valid until the next round.

    graphs_up_to: the largest batch whose steps are graphs; 0 for none. every_token: keep no drafted token, for a trace.
    """

    def __init__(
        self,
        shape: TreeShape,
        head: ShardedTopK,
        mask: MaskBuffer,
        context: Context,
        *,
        graphs_up_to: int,
        every_token: bool = False,
    ) -> None:
        self._every_token = every_token
        self._builder = TreeBuilder(shape.depth, shape.topk, shape.budget, shape.chain_seed, head.device)
        self._head, self._mask, self._context, self._depth = head, mask, context, shape.depth
        self._graphs_up_to = graphs_up_to
        if graphs_up_to:
            with torch.no_grad(), accounted(graphs_up_to):
                self._capture(shape)

    def _capture(self, shape: TreeShape) -> None:
        largest, device = self._graphs_up_to, self._head.device
        pool = graph_pool()
        hidden = torch.zeros(
            (largest, shape.depth, self._head.hidden_size), dtype=self._head.dtype, device=device
        )
        roots, seq_lens = torch.zeros((2, largest), dtype=torch.int64, device=device)
        choice, slots = torch.zeros((2, largest, shape.width), dtype=torch.int64, device=device)
        accepted = torch.zeros(
            (largest, shape.depth + 1, self._context.features), dtype=self._context.dtype, device=device
        )
        source = hidden
        if not self._head.is_local:  # only SGLang may capture its collectives: the gather stays outside
            self._pack_graphs = Graphs(self._pack, (hidden,), largest, pool)
            source = self._head.gather(self._pack(hidden)).contiguous()
        grow = Graphs(self._grow, (source, roots, seq_lens), largest, pool)
        follow = Graphs(
            lambda choice, slots: self._follow(
                grow.result(len(choice)), choice, slots, seq_lens[: len(choice)]
            ),
            (choice, slots),
            largest,
            pool,
        )
        absorb = Graphs(
            lambda hidden: self._context.absorb(hidden.flatten(0, 1), *follow.result(len(hidden)).path[1:]),
            (accepted,),
            largest,
            pool,
        )
        self._grow_graphs, self._follow_graphs, self._absorb_graphs = grow, follow, absorb

    def grow(self, hidden: torch.Tensor, roots: torch.Tensor, seq_lens: torch.Tensor) -> Grown:
        """Draft trees and write their mask.

        hidden: [bs, L, H] of the drafter. roots: [bs], last tokens; seq_lens: [bs], where they stand.
        """
        replays = self._replays(len(roots))
        source = hidden
        if not self._head.is_local:
            source = self._head.gather(self._pack_graphs(hidden) if replays else self._pack(hidden))
        return (self._grow_graphs if replays else self._grow)(source, roots, seq_lens)

    def follow(
        self, grown: Grown, choice: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Followed:
        """grown: what `grow` returned last. choice: [bs, W], the target's token at every node of its trees.

        slots: [bs, W], where the forward put each node's keys and values. seq_lens: as `grow` got them.
        """
        if self._replays(len(choice)):
            return self._follow_graphs(choice, slots)
        return self._follow(grown, choice, slots, seq_lens)

    def absorb(self, hidden: torch.Tensor, followed: Followed) -> None:
        """Give the drafter the accepted paths. hidden: [bs * W, features], what the forward captured at every node.

        All of each path: where a request turns out to end inside it, the rest lies in slots that are free then.
        """
        size = len(followed.nodes)
        if self._replays(size):
            (accepted,) = self._absorb_graphs.inputs(size)
            torch.index_select(hidden, 0, followed.path.rows, out=accepted.flatten(0, 1))
            self._absorb_graphs.replay(size)
        else:
            self._context.absorb(hidden.index_select(0, followed.path.rows), *followed.path[1:])

    def _replays(self, requests: int) -> bool:
        return requests <= self._graphs_up_to and self._mask.is_shared

    def _pack(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._head.pack(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])

    def _grow(self, source: torch.Tensor, roots: torch.Tensor, seq_lens: torch.Tensor) -> Grown:
        """source: hidden states, or what the ranks gathered of them."""
        rows = source.flatten(0, 1)
        logprobs, ids = self._head(rows) if self._head.is_local else self._head.merge(rows)
        logprobs, ids = (part.unflatten(0, (-1, self._depth)) for part in (logprobs, ids))
        trees = self._builder(logprobs, ids, roots)
        self._mask.write(trees.visible, seq_lens)
        return Grown(trees, seq_lens[:, None] + trees.depths, logprobs, ids)

    def _follow(
        self, grown: Grown, choice: torch.Tensor, slots: torch.Tensor, seq_lens: torch.Tensor
    ) -> Followed:
        nodes, lengths = accept(grown.trees, choice, self._depth)
        if self._every_token:  # the root alone is kept, and what the target says after it
            nodes, lengths = torch.zeros_like(nodes), torch.zeros_like(lengths)
        said = choice.gather(1, nodes)
        positions, places = grown.positions.gather(1, nodes), slots.gather(1, nodes).to(torch.int64)
        return Followed(
            nodes,
            Path(path_rows(nodes, choice.shape[1]), positions.flatten(), places.flatten()),
            keep(nodes, lengths + 1, slots, seq_lens),
            # the path repeats its last node to the end, and so the last column is what the target says there
            torch.cat([said, lengths[:, None]], dim=1),
            said[:, -1].clone(),
        )


def graph_pool() -> object:
    """Memory that all steps share: what one of them needs only while it runs, the others may use."""
    return torch.cuda.graph_pool_handle()
