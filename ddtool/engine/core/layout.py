"""The shape of a batch of trees, and the two steps by which every builder arrives at it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Trees(NamedTuple):
    """One tree a request, best nodes first: row 0 is the root, and every parent precedes its children.

    tokens: int64 [bs, W], the root's is the last known token
    parents: int64 [bs, W], the parent's row; -1 for the root and for padding
    depths: int64 [bs, W], positions from the root; siblings share one
    ranks: int64 [bs, W], index into K of the choice taken, 0 the drafter's first; 0 for root and padding too
    visible: bool [bs, W, W], row i may see row j: j is i or an ancestor of i

    Where fewer than B prefixes exist, the last rows are padding: without a parent, so that no walk can reach them,
    with the root's token at the root's position, and seeing nothing in the tree but themselves.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    ranks: Tensor
    visible: Tensor


def rows_of(chosen: Tensor, candidates: int, rows: Tensor) -> Tensor:
    """The row that each chosen candidate has: int64 [bs, candidates + 1], its last column, "nobody", -1.

    chosen: int64 [bs, W], different along W; rows: 0 .. W - 1. What was not chosen stays uninitialised, since all that
    is looked up was: the choice is closed under "parent of", for any input.
    """
    found = torch.empty((len(chosen), candidates + 1), dtype=torch.int64, device=chosen.device)
    found[:, -1] = -1
    return found.scatter_(1, chosen, rows.expand_as(chosen))


def sees_always(width: int, prefixes: int, device: torch.device | str) -> Tensor:
    """bool [W, W], what a row sees whatever the tree is: itself, and the root if it is one of `prefixes` nodes."""
    always = torch.eye(width, dtype=torch.bool, device=device)
    always[: prefixes + 1, 0] = True
    return always


def visibility(always: Tensor, ancestors: Tensor) -> Tensor:
    """bool [bs, W, W]: `always` and each row's other ancestors, int64 [bs, W, any] rows, where its own may fill in."""
    return always.expand(len(ancestors), -1, -1).clone().scatter_(2, ancestors, True)
