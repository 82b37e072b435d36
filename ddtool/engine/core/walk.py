"""Which nodes the target accepts: the path that its own tokens follow down the tree, in a few device operations."""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import Trees


def accept(trees: Trees, choices: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The accepted path of each tree.

    choices: int64 [bs, W], the target's token after each node; length: the deepest a tree can be (L)
    Returns (nodes, lengths). nodes: int64 [bs, L + 1], rows in path order from the root on; past its end the path
    repeats its last node. lengths: int64 [bs], drafted nodes on the path, 0 where the root alone is.

    So `choices.gather(1, nodes)` are the tokens that the round emits, lengths + 1 of them, and its last column is the
    bonus token: what the target says where no child agrees.
    """
    batch, width = choices.shape
    rows = torch.arange(width, device=choices.device)
    # Siblings carry different tokens, so all nodes whose whole lineage agrees with the target are on one path.
    agrees = (trees.tokens == choices.gather(1, trees.parents.clamp_min(0))) & (trees.parents >= 0)
    agrees[:, 0] = True
    refused = (trees.visible & ~agrees[:, None, :]).any(2)
    # The last node is the deepest; the row in the low part leaves no tie, should a drafter repeat a token after all.
    best = (trees.depths * width + (width - 1 - rows)).masked_fill_(refused, -1).amax(1)
    lengths, last = best // width, width - 1 - best % width

    on_path = trees.visible.gather(1, last[:, None, None].expand(-1, 1, width)).squeeze(1)
    place = torch.where(on_path, trees.depths, length + 1)  # the extra column takes what is not on the path
    nodes = last[:, None].repeat(1, length + 2).scatter_(1, place, rows.expand(batch, -1))
    return nodes[:, :-1], lengths
