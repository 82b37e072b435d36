"""Is the tree expected to beat the chain? Arithmetic over published measurements, before anything has run.

    tokens per second = accept length / (verify(width) + draft)

verify(N) is taken from the batch curve of plain decoding of Kimi K2.6 on eight RTX PRO 6000 cards (another
engine, the same kind of machine): a verify of N tokens costs about what a batch of N does. Accept lengths
start from a chain of 3.5 and of 4.1 tokens a round; the tree's gain follows a factorised drafter's model.
This is a prediction: `bench` measures, and its numbers replace these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ddtool.profile.schema import Profile

DRAFT_MS = 2.5
# (tokens in the step, milliseconds)
VERIFY_MS = ((1, 10.9), (2, 13.2), (4, 16.5), (8, 22.9), (16, 32.5), (32, 37.3), (64, 45.8))
# (budget, accept length when the chain's is 3.5, when it is 4.1); block 8, topk 8
TREE_ACCEPT = ((8, 3.6, 4.2), (16, 4.1, 4.6), (32, 4.6, 5.15), (64, 5.2, 5.7))
CHAIN_ACCEPT = (3.5, 4.1)


@dataclass(frozen=True)
class Prediction:
    """Tokens per second for one request, low and high."""

    chain: tuple[float, float]
    tree: tuple[float, float] | None  # None: the profile runs the chain
    break_even_ms: tuple[float, float] | None  # the tree wins when one verify takes less, low and high

    @property
    def own(self) -> tuple[float, float]:
        return self.tree or self.chain

    @property
    def tree_loses(self) -> bool:
        return self.tree is not None and self.tree[1] < self.chain[1]


def predict(profile: Profile) -> Prediction | None:
    """The prediction, or None for a model, machine or block that nobody has published numbers for."""
    shape, card, spec = profile.model.shape, profile.parallel.card, profile.speculative
    if shape is None or card is None or spec.algorithm == "NONE" or spec.block_size != 8:
        return None
    is_kimi = (shape.attention, shape.layers, shape.hidden) == ("mla", 61, 7168)
    if not is_kimi or "RTX PRO 6000" not in card.name or profile.parallel.tp != 8:
        return None
    low, high = CHAIN_ACCEPT
    chain = (_rate(low, 8), _rate(high, 8))
    if spec.budget is None or not TREE_ACCEPT[0][0] <= spec.budget <= TREE_ACCEPT[-1][0]:
        return Prediction(chain, None, None) if spec.algorithm == "DFLASH" else None
    accept = (
        _interpolate([(budget, value) for budget, value, _ in TREE_ACCEPT], spec.budget),
        _interpolate([(budget, value) for budget, _, value in TREE_ACCEPT], spec.budget),
    )
    tree = (_rate(accept[0], spec.budget + 1), _rate(accept[1], spec.budget + 1))
    even = (accept[0] / chain[0] * 1000 - DRAFT_MS, accept[1] / chain[1] * 1000 - DRAFT_MS)
    return Prediction(chain, tree, (min(even), max(even)))


def _rate(accept_length: float, width: int) -> float:
    return accept_length / (_interpolate(VERIFY_MS, width) + DRAFT_MS) * 1000


def _interpolate(points: Sequence[tuple[int, float]], x: int) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]
