"""Path scores as exact integers, so that a tree does not depend on the order in which terms are added.

A node's score is the sum of its path's log-probabilities. Float sums depend on the order of addition, and a child whose
own log-probability rounds to nothing ties with its parent; either can put a child before its parent or give two ranks two
trees. Costs (negated log-probabilities) in fixed point add exactly, and each carries a tie-breaker in its low bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

FRACTION_BITS = 32  # 2.3e-10 nats, 250 times finer than float32 near a cost of 1
COST_CAP = 128.0  # nats; float32 probabilities end at 104, so this is "never"
NEVER_COST = int(COST_CAP) << FRACTION_BITS
SCORE_BITS = 61  # a key stays below the bonus that seeds the chain, and both inside int64
CHAIN_BONUS = 1 << 62


def fixed_point(log_probs: Tensor) -> Tensor:
    """Costs in units of 2**-32 nats: int64, the shape of `log_probs` (float32).

    Every result is in [0, COST_CAP]: -inf and NaN cost the cap, and what rounding has put above 0 costs nothing. The scale
    is a power of two, so the only rounding is the cut below one unit, the same on every device.
    """
    cost = log_probs.nan_to_num(nan=-COST_CAP).clamp_(-COST_CAP, 0.0)
    return cost.mul_(-float(1 << FRACTION_BITS)).long()


def tie_bits(length: int, entries: int) -> int:
    """Low bits that number `entries` keys apart. Raises ValueError when a sum of `length` costs leaves too few."""
    bits = (entries - 1).bit_length()
    if (NEVER_COST * length).bit_length() + bits > SCORE_BITS:
        raise ValueError(
            f"{entries} candidates of depth {length} do not fit into 64-bit keys; use a smaller budget"
        )
    return bits


def seeded_order(entries: int, chain: Tensor, device: torch.device | str) -> Tensor:
    """Tie-breakers int64 [entries]: the entry's own number, less a bonus that puts the entries in `chain` before all."""
    order = torch.arange(entries, device=device)
    order[chain.to(device)] -= CHAIN_BONUS
    return order
