"""What a round keeps and what it gives back, as index arithmetic: KV slots, hidden rows, lengths."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CommitPlan(NamedTuple):
    """T nodes are kept over the whole batch, in the order (request, path).

    rows: int64 [T], into the bs * W rows of the verify forward: the hidden states to keep, in path order
    kept: [T], the KV slots of those nodes
    freed: [bs * W - T], all other slots of the forward
    seq_lens: [bs], new lengths
    """

    rows: Tensor
    kept: Tensor
    freed: Tensor
    seq_lens: Tensor


def plan_commit(nodes: Tensor, counts: Tensor, total: int, slots: Tensor, seq_lens: Tensor) -> CommitPlan:
    """Keep the first `counts` nodes of every path. Each slot is in exactly one of `kept` and `freed`.

    nodes: int64 [bs, L + 1], as `walk.accept` returns them
    counts: int [bs], how many to keep: at most the path's length + 1, fewer where a request ended inside it
    total: sum of `counts`, known to the host already, so that nothing waits for the device
    slots: [bs, W], where the forward wrote each node's keys and values; seq_lens: [bs], lengths before this round
    """
    batch, width = slots.shape
    device = slots.device
    # Kept nodes get their place in (request, path) as a key below all others; sorting then splits the rows in two.
    own = torch.arange(batch * width, device=device).view(batch, width)
    steps = torch.arange(nodes.shape[1], device=device).expand_as(nodes)
    keeps = steps < counts[:, None]
    keys = torch.cat([own + batch * width, own[:, :1]], 1)  # the extra column takes what is not kept
    keys.scatter_(1, torch.where(keeps, nodes, width), own[:, :1] + steps)
    order = keys[:, :-1].flatten().argsort()
    rows = order[:total]
    flat = slots.flatten()
    return CommitPlan(rows, flat[rows], flat[order[total:]], seq_lens + counts.to(seq_lens.dtype))
