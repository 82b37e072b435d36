"""How many tokens a round gains, for every tree, from one traced run.

What the drafter says at a position depends on the text before it and on nothing else, and a round takes the longest
path of its tree that is the text's own continuation. Greedy text is the same for every tree; sampled text has the same
distribution, since the target draws its token without looking at the tree. So a text with a draft at each position
tells what any tree would have taken in it, round by round and exactly: grow the tree, walk it along the text, go on
where the walk ended.

With drafts only where one budget's rounds began, other budgets' rounds would begin elsewhere, and a mean over the
places that are known is all there is. For other budgets of the tree that is within 1 %; for the chain it is 3 to 6 %
too much, because the chain begins more of its rounds where drafting is hard (docs/tune.md).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from statistics import fmean, pstdev

from ddtool.bench.tune.trace import Text
from ddtool.bench.tune.trees import Shape, chain_takes, needs

RESAMPLES = 300
Taken = Mapping[int, int]  # by a root's place in the text: drafted tokens that a round from there takes


class Acceptance:
    """What traced texts say of every shape, up to the budget `most` and as many choices as were traced.

    Raises ValueError when no text has a round.
    """

    def __init__(self, texts: Sequence[Text], most: int) -> None:
        self.texts = [text for text in texts if text.drafts and text.rounds_end > 0]
        if not self.texts:
            raise ValueError("the trace has no round of a completion")
        self.most = most
        self._needs: dict[int, list[dict[int, tuple[int, ...]]]] = {}
        self._rounds: dict[Shape, list[float]] = {}

    @cached_property
    def topk(self) -> int:
        """Choices a position in the trace."""
        return min(len(draft.ids[0]) for text in self.texts for draft in text.drafts.values())

    @cached_property
    def block(self) -> int:
        """The root and the positions that are drafted after it."""
        return 1 + max(len(draft.ids) for text in self.texts for draft in text.drafts.values())

    @cached_property
    def is_exact(self) -> bool:
        """Whether every position has its draft."""
        return all(text.is_dense for text in self.texts)

    @cached_property
    def numbers(self) -> dict[tuple[str, str], int]:
        """Of texts, by the digests of prompt and text; without those that have none."""
        return {text.said: number for number, text in enumerate(self.texts) if text.said is not None}

    def rounds(self, shape: Shape) -> list[float]:
        """Rounds that each text takes, as the server counts them in `spec_verify_ct`.

        Raises ValueError for a shape beyond the trace.
        """
        if shape not in self._rounds:
            pairs = zip(self.texts, self._taken(shape), strict=True)
            self._rounds[shape] = [rounds(text, taken) for text, taken in pairs]
        return self._rounds[shape]

    def length(self, shape: Shape) -> float:
        """Accept length over all texts: completion tokens a round, prefill's token among them, as SGLang counts."""
        return self._tokens / sum(self.rounds(shape))

    def by_depth(self, shape: Shape) -> list[float]:
        """Share of rounds that take at least 1, 2, … drafted tokens, up to the depth of a tree."""
        pairs = zip(self.texts, self._taken(shape), strict=True)
        taken = [takes[root] for text, takes in pairs for root in roots(text, takes)]
        return [fmean(count >= depth for count in taken) for depth in range(1, self.block)]

    def error(self, shape: Shape, base: Shape | None = None) -> float:
        """Relative standard error of the accept length, or of its ratio to `base`'s, for other prompts of this kind.

        By drawing texts again with replacement, the same for both. 1.0 from one text, which says nothing of others.
        """
        if len(self.texts) < 2:
            return 1.0
        sizes = [len(text.ids) for text in self.texts]
        mine = self.rounds(shape)
        over = sizes if base is None else self.rounds(base)
        draw = random.Random(0)  # noqa: S311  the same answer every time, no secret
        ratios = []
        for _ in range(RESAMPLES):
            rows = draw.choices(range(len(mine)), k=len(mine))
            ratios.append(sum(over[row] for row in rows) / sum(mine[row] for row in rows))
        narrow = math.sqrt(len(mine) / (len(mine) - 1))  # what is drawn again from few varies too little
        return narrow * pstdev(ratios) / fmean(ratios)

    @property
    def _tokens(self) -> int:
        return sum(len(text.ids) for text in self.texts)

    def _taken(self, shape: Shape) -> list[dict[int, int]]:
        """For each text."""
        if shape.is_chain:
            return [
                {root: chain_takes(draft, text.ids[root + 1 :]) for root, draft in text.drafts.items()}
                for text in self.texts
            ]
        if shape.budget > self.most or shape.topk > self.topk:
            raise ValueError(f"the trace goes to budget {self.most} and top-k {self.topk}, not to {shape}")
        if shape.topk not in self._needs:
            self._needs[shape.topk] = [
                {
                    root: needs(draft, text.ids[root + 1 : root + self.block], shape.topk, self.most)
                    for root, draft in text.drafts.items()
                }
                for text in self.texts
            ]
        return [
            {root: sum(need <= shape.budget for need in found) for root, found in by_root.items()}
            for by_root in self._needs[shape.topk]
        ]


def rounds(text: Text, taken: Taken) -> float:
    """Counted from root to root, or, where a root may have no draft, from the mean over those that have."""
    if text.is_dense:
        return float(sum(1 for _ in roots(text, taken)))
    return text.rounds_end / (1 + fmean(taken.values()))


def roots(text: Text, taken: Taken) -> Iterable[int]:
    """Where rounds begin, with all drafts there; of the drafted roots, all, where some are missing."""
    if not text.is_dense:
        yield from taken
        return
    root = 0
    while root < text.rounds_end:
        yield root
        root += taken[root] + 1
