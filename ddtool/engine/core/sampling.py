"""What the target says at each node: its distribution under a request's sampling parameters, and one draw from it.

The draw is the token that plain decoding would emit there, so following it down the tree keeps the target's
distribution at any temperature, whatever the drafter proposes (arXiv 2604.12989; no rejection test, no drafter
probabilities). Filters are those of SGLang's PyTorch sampling backend: top-k and top-p on the same sorted
probabilities, top-p on the mass before the token without renormalising, then min-p relative to the best token.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 512


def sample(
    logits: Tensor,
    *,
    temperatures: Tensor,
    top_ps: Tensor,
    top_ks: Tensor,
    min_ps: Tensor,
    uniforms: Tensor,
    filtered: bool = True,
) -> Tensor:
    """One token a row: int64 [R]. Rows are nodes; a request's parameters are repeated for each of its nodes.

    logits: [R, V]; temperatures, top_ps, top_ks, min_ps: [R]
    uniforms: float32 [R] in [0, 1); ranks that pass the same numbers draw the same tokens
    filtered: False says that no row filters, which saves sorting the vocabulary; the distribution is the same
    A row of temperature 0 or top-k 1 is greedy: its argmax, the lowest id among equals.
    """
    greedy = (temperatures == 0) | (top_ks == 1)
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    probs = torch.softmax(scaled, -1)
    if filtered:
        falling, ids = probs.sort(dim=-1, descending=True, stable=True)
        drawn = ids.gather(1, _draw(_filter(falling, top_ps, top_ks, min_ps), uniforms)[:, None]).squeeze(1)
    else:
        drawn = _draw(probs, uniforms)
    return torch.where(greedy, logits.argmax(-1), drawn)


def _filter(falling: Tensor, top_ps: Tensor, top_ks: Tensor, min_ps: Tensor) -> Tensor:
    """`falling` [R, V], each row in falling order, with 0 for every token that the request rules out."""
    before = falling.cumsum(-1) - falling
    places = torch.arange(falling.shape[-1], device=falling.device)
    out = (
        (places >= top_ks[:, None])
        | (before > top_ps[:, None])
        | (falling < falling[:, :1] * min_ps[:, None])
    )
    return falling.masked_fill(out, 0.0)


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index of each row's draw by inverse CDF: int64 [R], never one of weight 0. weights: float32 [R, V].

    In two steps, blocks and then one block's entries, in float64: no running sum over the whole vocabulary, whose
    rounding would tilt the distribution, and only as many float64 as there are blocks.
    """
    size = min(BLOCK, weights.shape[-1])
    blocks = pad(weights, (0, -weights.shape[-1] % size)).unflatten(-1, (-1, size))
    masses = blocks.sum(-1, dtype=torch.float64)
    block, rest = _locate(masses, masses.sum(-1) * uniforms)
    inside = blocks.gather(1, block[:, None, None].expand(-1, 1, size)).squeeze(1)
    return block * size + _locate(inside.double(), rest)[0]


def _locate(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Where the running sum of `weights` [R, n] first exceeds `target` [R], and how far into that entry it lies."""
    sums = weights.cumsum(-1)
    index = (sums <= target[:, None]).sum(-1)
    # Rounding may put the target at or past the total: then the last entry that has weight.
    index = torch.minimum(index, (sums < sums[:, -1:]).sum(-1))
    at = index[:, None]
    return index, target - (sums - weights).gather(1, at).squeeze(1)
