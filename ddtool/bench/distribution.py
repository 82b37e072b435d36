"""At a temperature: do two arms draw tokens from one distribution? A G-test on first tokens, by permutation. Pure.

Outputs of plain decoding and of an arm for the same prompt are pooled; if both come from one distribution, any split of
the pool into two halves is as likely as the one seen. So the p-value needs no approximation for rare tokens, and whole
outputs change sides, so it does not mind that an output's tokens depend on each other.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import log
from typing import Any

TOKENS = 8  # of each output; later ones are too various to be compared
SPLITS = 999
ALPHA = 0.01
POWER = 0.9
TRIALS = 60  # simulated experiments for each size of difference
SHIFTS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
TELLING = 0.3  # a test that cannot see even this difference says nothing by finding none
END, OTHER = -1, -2  # stand for tokens behind an output's end, and for rare ones
RARE = 10  # tokens that both arms together said less often at a position count as one: alone they are noise

Outputs = Mapping[str, Sequence[Sequence[int]]]
Codes = list[
    list[tuple[int, ...]]
]  # by prompt: outputs, each of them the numbers of its (prompt, position, token)


@dataclass(frozen=True)
class Comparison:
    """samples: outputs of the arm. sees: how much probability has to move, from each position's likeliest token to its
    next, to be noticed nine times in ten; None if even one half would not be."""

    prompts: int
    samples: int
    tokens: int
    statistic: float
    p: float
    sees: float | None

    @property
    def differs(self) -> bool:
        return self.p < ALPHA

    @property
    def telling(self) -> bool:
        return self.sees is not None and self.sees <= TELLING

    @property
    def words(self) -> str:
        where = f"first {self.tokens} tokens of {self.samples} outputs to {self.prompts} prompts"
        if self.differs:
            return f"the {where} are not drawn as plain decoding draws them (p = {self.p:.3f})"
        more = "" if self.telling else "; it takes few prompts asked often: a file of 2, and --prompts 200"
        if self.sees is None:
            return f"the {where} cannot show even half of the probability moved (p = {self.p:.2f}){more}"
        seen = f"{self.sees:.0%} of probability moved would have been seen"
        return f"the {where} show no difference (p = {self.p:.2f}); {seen}{more}"

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "samples": self.samples,
            "tokens": self.tokens,
            "statistic": round(self.statistic, 3),
            "p": round(self.p, 4),
            "alpha": ALPHA,
            "sees": self.sees,
        }


def compare(plain: Outputs, arm: Outputs, *, tokens: int = TOKENS, seed: int = 0) -> Comparison:
    """plain, arm: by prompt, the token ids of each output. Prompts that only one has are left out."""
    rng = random.Random(seed)  # noqa: S311  the same samples have to give the same verdict
    shared = sorted(prompt for prompt in plain if plain[prompt] and arm.get(prompt))
    pools, ours = _coded([(plain[prompt], arm[prompt]) for prompt in shared], tokens)
    samples = sum(ours)
    if not shared:
        return Comparison(0, 0, tokens, 0.0, 1.0, None)
    counts = [*map(_counted, pools)]
    seen = _statistic(counts, [pool[-size:] for pool, size in zip(pools, ours, strict=True)], pools)
    splits = [
        _statistic(counts, [rng.sample(pool, size) for pool, size in zip(pools, ours, strict=True)], pools)
        for _ in range(SPLITS)
    ]
    as_far = sum(split >= seen - 1e-9 for split in splits)
    limit = sorted(splits)[int((1 - ALPHA) * SPLITS)]
    sees = _least_seen(pools, ours, limit, rng)
    return Comparison(len(shared), samples, tokens, seen, (1 + as_far) / (1 + SPLITS), sees)


def _coded(
    pairs: Sequence[tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]], tokens: int
) -> tuple[Codes, list[int]]:
    """Both sides' outputs as one pool a prompt, plain decoding's first; and how many of each are the arm's.

    What is rare at its position is decided in the pool, which does not know the sides, so it biases nothing.
    """
    pools: Codes = []
    numbers: dict[tuple[int, int, int], int] = {}
    for prompt, (plain, arm) in enumerate(pairs):
        padded = [[*output[:tokens], *[END] * (tokens - len(output))] for output in chain(plain, arm)]
        seen = [Counter(column) for column in zip(*padded, strict=True)]
        pool = []
        for output in padded:
            kept = [
                token if count[token] >= RARE else OTHER for token, count in zip(output, seen, strict=True)
            ]
            places = [(prompt, position, token) for position, token in enumerate(kept)]
            pool.append(tuple(numbers.setdefault(place, len(numbers)) for place in places))
        pools.append(pool)
    return pools, [len(arm) for _, arm in pairs]


def _counted(outputs: Sequence[tuple[int, ...]]) -> Counter[int]:
    return Counter(chain.from_iterable(outputs))


def _statistic(counts: Sequence[Counter[int]], ours: Codes, pools: Codes) -> float:
    """G summed over prompts and positions: twice the log-likelihood ratio of two distributions against one."""
    total = 0.0
    for count, mine, pool in zip(counts, ours, pools, strict=True):
        n, here, there = len(pool), len(mine), len(pool) - len(mine)
        taken = _counted(mine)
        cells = sum(
            _xlogx(taken[code]) + _xlogx(every - taken[code]) - _xlogx(every) for code, every in count.items()
        )
        total += 2 * (cells + len(pool[0]) * (_xlogx(n) - _xlogx(here) - _xlogx(there)))
    return total


def _least_seen(pools: Codes, ours: Sequence[int], limit: float, rng: random.Random) -> float | None:
    """The smallest of SHIFTS that simulated experiments of this size notice, in POWER of them."""

    def noticed(shift: float) -> bool:
        seen = sum(_simulated(pools, ours, shift, rng) > limit for _ in range(TRIALS))
        return seen >= POWER * TRIALS

    place = bisect_left(SHIFTS, True, key=noticed)
    return SHIFTS[place] if place < len(SHIFTS) else None


def _simulated(pools: Codes, ours: Sequence[int], shift: float, rng: random.Random) -> float:
    """The statistic of an experiment in which the arm moves `shift` of probability at every position."""
    mixed, moved = [], []
    for pool, size in zip(pools, ours, strict=True):
        mine = [tuple(output) for output in _moved(rng.choices(pool, k=size), pool, shift, rng)]
        moved.append(mine)
        mixed.append([*rng.choices(pool, k=len(pool) - size), *mine])
    return _statistic([_counted(pool) for pool in mixed], moved, mixed)


def _moved(
    drawn: Sequence[tuple[int, ...]], pool: Sequence[tuple[int, ...]], shift: float, rng: random.Random
) -> list[list[int]]:
    """Each position's likeliest token becomes its next likeliest so often that `shift` of probability moves."""
    rows = [list(output) for output in drawn]
    for position in range(len(pool[0])):
        ranked = Counter(output[position] for output in pool).most_common(2)
        if len(ranked) < 2:
            continue  # the prompt leaves no choice here, so there is no probability to move
        (best, times), (second, _) = ranked
        chance = shift * len(pool) / times
        for row in rows:
            if row[position] == best and rng.random() < chance:
                row[position] = second
    return rows


@cache
def _xlogx(count: int) -> float:
    return count * log(count) if count else 0.0
