"""What a round keeps and what it gives back, as index arithmetic: KV slots, hidden rows, lengths."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Kept(NamedTuple):
    """What stays of a verify forward when each request keeps the first `counts` nodes of its path.

    counts: int32 [bs]
    slots: [bs * W], all KV slots of the forward; those kept come first, in the order (request, path). How many they are
    is the host's to know, so that nothing waits for the device
    seq_lens: [bs], new lengths
    """

    counts: Tensor
    slots: Tensor
    seq_lens: Tensor


def keep(nodes: Tensor, counts: Tensor, slots: Tensor, seq_lens: Tensor) -> Kept:
    """Keep the first `counts` nodes of every path.

    nodes: int64 [bs, L + 1], as `walk.accept` returns them
    counts: int [bs], how many to keep: at most the path's length + 1, fewer where a request ended inside it
    slots: [bs, W], where the forward wrote each node's keys and values; seq_lens: [bs], lengths before this round
    """
    batch, width = slots.shape
    # Kept nodes get their place in (request, path) as a key below all others; sorting then splits the rows in two.
    own = torch.arange(batch * width, device=slots.device).view(batch, width)
    steps = torch.arange(nodes.shape[1], device=slots.device).expand_as(nodes)
    keys = torch.cat([own + batch * width, own[:, :1]], 1)  # the extra column takes what is not kept
    keys.scatter_(1, torch.where(steps < counts[:, None], nodes, width), own[:, :1] + steps)
    order = keys[:, :-1].flatten().argsort()
    return Kept(counts.to(torch.int32), slots.flatten()[order], seq_lens + counts.to(seq_lens.dtype))


def path_rows(nodes: Tensor, width: int) -> Tensor:
    """Rows of the verify forward along every path, in the order (request, path): int64 [bs * (L + 1)].

    nodes: int64 [bs, L + 1], as `walk.accept` returns them; width: W, a request's rows in the forward
    """
    requests = torch.arange(len(nodes), device=nodes.device)
    return (nodes + requests[:, None] * width).flatten()
