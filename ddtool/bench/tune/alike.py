"""A predicted accept length against the measured one, over the answers that are the traced texts. Pure.

Rounds follow from a text, and greedy texts are not always the same: in bfloat16 two tokens can be nearly as likely,
and a verify of another width, or a batch of another size, rounds otherwise and goes the other way. An answer that is
another text says nothing about a prediction from the traced one, so it is left out where the samples tell it from
the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.rounds import Timing
from ddtool.bench.tune.trees import Shape

WITHIN = 0.02
ENOUGH = 0.25  # share of answers that have to be the traced texts, to judge by them alone
ERRORS = 4  # standard errors that other texts may make: of nine arms all pass in 97 of 100 right runs


@dataclass(frozen=True)
class Judged:
    """answers: of all passes. alike: those that are the traced texts; None where the samples do not tell.

    off: predicted over measured, less 1; of the alike answers if there are enough, else of all. within: the most that
    is good.
    """

    answers: int
    alike: int | None
    off: float
    within: float

    @property
    def by_text(self) -> bool:
        return self.alike is not None and self.alike >= ENOUGH * self.answers


def judged(acceptance: Acceptance, shape: Shape, runs: Sequence[Timing], *, sampled: bool) -> Judged:
    """runs: passes of that shape over the traced prompts, one or more. sampled: texts differ by design."""
    answers = sum(len(one.rounds) for one in runs)
    pairs = [
        (acceptance.rounds(shape)[acceptance.numbers[said]], rounds)
        for one in runs
        for said, rounds in zip(one.said, one.rounds, strict=True)
        if said in acceptance.numbers
    ]
    told = bool(acceptance.numbers) and any(output for one in runs for _, output in one.said)
    if pairs and len(pairs) >= ENOUGH * answers:
        predicted, measured = (sum(side) for side in zip(*pairs, strict=True))
        return Judged(answers, len(pairs), measured / predicted - 1, WITHIN)
    length = sum(sum(one.tokens) for one in runs) / sum(sum(one.rounds) for one in runs)
    within = max(WITHIN, ERRORS * _error(acceptance, shape, runs)) if told or sampled else WITHIN
    return Judged(answers, len(pairs) if told else None, acceptance.length(shape) / length - 1, within)


def _error(acceptance: Acceptance, shape: Shape, runs: Sequence[Timing]) -> float:
    """Relative standard error of the difference of both lengths, by how far the texts of one prompt are apart.

    1.0 from one prompt.
    """
    texts, rounds = acceptance.texts, acceptance.rounds(shape)
    rates = [took / text.rounds_end for took, text in zip(rounds, texts, strict=True)]
    apart = [
        fmean(one.rounds[place] - rates[place % len(rates)] * max(one.tokens[place] - 1, 0) for one in runs)
        for place in range(min(len(one.rounds) for one in runs))
    ]
    if len(apart) < 2:
        return 1.0
    return math.sqrt(len(apart)) * stdev(apart) / fmean(sum(one.rounds) for one in runs)
