"""Path scores as whole numbers, so that a tree does not depend on the order in which costs are added.

Float sums do depend on it, and a child that costs next to nothing ties with its parent: both can put a child
before its parent, or give two ranks two trees. Here costs (negated log-probabilities) are whole multiples of
2**-28 nats in float64. Their sums stay below 2**53, hence are exact, in any order, fused or not, on any
device with IEEE float64; a key carries the candidate's number in its low bits, hence no two are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

FRACTION_BITS = 28  # 4e-9 nats; float32 itself is coarser from a cost of 0.06 on
CAP_BITS = 6  # a cost of 64 nats, probability 1e-28, is "never"
FLOAT_BITS, INTEGER_BITS = 52, 61  # of a key; one more puts a seeded chain before the rest, float64 holds 53


def exact_costs(log_probs: Tensor) -> Tensor:
    """float32 log-probabilities → costs in units of 2**-28 nats: float64, whole numbers from 0 to 2**34.

    -inf and NaN cost the cap; what rounding has put above 0 costs nothing. The scale is a power of two, so
    all that is lost is below one unit.
    """
    cap = float(1 << CAP_BITS)
    costs = log_probs.nan_to_num(nan=-cap).clamp_(-cap, 0.0)
    return costs.mul_(-float(1 << FRACTION_BITS)).trunc_().double()


def number_bits(length: int, candidates: int, key_bits: int) -> int:
    """Low bits of a key that number the candidates. Raises ValueError if costs of `length` nodes leave too few."""
    bits = (candidates - 1).bit_length()
    if dearest(length).bit_length() + bits > key_bits:
        raise ValueError(f"{candidates} candidates of depth {length} need keys of more than {key_bits} bits")
    return bits


def most_candidates(length: int) -> int:
    """How many candidates float64 keys can number."""
    return 1 << (FLOAT_BITS - dearest(length).bit_length())


def dearest(length: int) -> int:
    """The highest cost of a path."""
    return length << (CAP_BITS + FRACTION_BITS)


def tie_breakers(candidates: int, chain: Tensor, key_bits: int) -> Tensor:
    """int64 [candidates], to add to keys: each candidate's number; behind a seeded chain for those not on it."""
    numbers = torch.arange(candidates)
    if len(chain):
        numbers += 1 << key_bits
        numbers[chain] -= 1 << key_bits
    return numbers
