"""Two arms at a temperature: a test that is as wrong as it says, and that sees what it says it sees."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
import scipy.stats

from ddtool.bench import distribution
from ddtool.bench.distribution import compare

WEIGHTS = [0.6, 0.2, 0.1, 0.05, 0.05]
Outputs = dict[str, list[list[int]]]


def drawn(rng: random.Random, count: int, weights: Sequence[float] = WEIGHTS, prompts: int = 2) -> Outputs:
    """Later tokens depend on earlier ones, as a model's do: half of them repeat the token before."""

    def output() -> list[int]:
        tokens = rng.choices(range(5), weights, k=6)
        for position in range(1, 6):
            if rng.random() < 0.5:
                tokens[position] = tokens[position - 1]
        return tokens

    return {str(prompt): [output() for _ in range(count)] for prompt in range(prompts)}


def shifted(rng: random.Random, outputs: Outputs, shift: float) -> Outputs:
    """`shift` of probability moved from token 0, which has 0.6, to token 1."""
    return {
        prompt: [[1 if t == 0 and rng.random() < shift / 0.6 else t for t in ids] for ids in each]
        for prompt, each in outputs.items()
    }


def test_the_statistic_is_scipys():
    rng = random.Random(4)
    even = [0.3, 0.2, 0.2, 0.15, 0.15]  # none of them rare
    plain, arm = drawn(rng, 130, even), drawn(rng, 150, even)
    total = 0.0
    for prompt in plain:
        for position in range(6):
            counts = [Counter(ids[position] for ids in side[prompt]) for side in (plain, arm)]
            table = [[count[token] for token in sorted(counts[0] + counts[1])] for count in counts]
            total += scipy.stats.chi2_contingency(table, lambda_="log-likelihood", correction=False).statistic
    assert compare(plain, arm, tokens=6).statistic == pytest.approx(total)


def test_the_same_samples_have_the_same_verdict_and_sides_do_not_matter():
    rng = random.Random(4)
    plain, arm = drawn(rng, 30), drawn(rng, 30)
    one, other = compare(plain, arm), compare(arm, plain)
    assert one == compare(plain, arm)
    assert one.statistic == pytest.approx(other.statistic)


def test_arms_alike_are_called_different_as_rarely_as_it_says(monkeypatch):
    """Though an output's tokens depend on each other, and rare ones are rare."""
    monkeypatch.setattr(distribution, "SPLITS", 99)
    monkeypatch.setattr(distribution, "SHIFTS", ())
    rng = random.Random(11)
    found = [compare(drawn(rng, 24), drawn(rng, 24)).p for _ in range(150)]
    assert sum(p <= 0.05 for p in found) / 150 < 0.09
    assert sum(p <= 0.5 for p in found) / 150 == pytest.approx(0.5, abs=0.12)


def test_what_it_says_it_sees_it_sees(monkeypatch):
    rng = random.Random(5)
    told = compare(drawn(rng, 100), drawn(rng, 100))
    assert told.sees in (0.15, 0.2)
    monkeypatch.setattr(distribution, "SHIFTS", ())
    monkeypatch.setattr(distribution, "SPLITS", 199)
    seen = sum(compare(drawn(rng, 100), shifted(rng, drawn(rng, 100), told.sees)).differs for _ in range(12))
    assert seen >= 8
    unseen = sum(compare(drawn(rng, 100), shifted(rng, drawn(rng, 100), 0.01)).differs for _ in range(12))
    assert unseen <= 2


def test_where_the_prompt_leaves_no_choice_nothing_can_be_seen():
    told = compare({"a": [[1, 2, 3]] * 40}, {"a": [[1, 2, 3]] * 40})
    assert (told.p, told.sees, told.telling) == (1, None, False)


def test_few_samples_see_little():
    rng = random.Random(5)
    few = compare(drawn(rng, 4), drawn(rng, 4))
    assert (few.sees, few.telling, few.differs) == (None, False, False)
    assert "cannot show even half" in few.words
    assert "few prompts asked often" in few.words


def test_of_a_thousand_tokens_the_rare_ones_count_as_one():
    """As a real model draws: alone they are noise, in which no difference would be seen."""
    rng, weights = random.Random(1), [1 / (rank + 1) ** 1.1 for rank in range(1024)]

    def sides() -> Outputs:
        return {prompt: [rng.choices(range(1024), weights, k=5) for _ in range(40)] for prompt in "ab"}

    told = compare(sides(), sides())
    assert (told.sees, told.differs) == (0.2, False)


def test_prompts_that_one_side_lacks_are_left_out():
    rng = random.Random(5)
    plain = drawn(rng, 10, prompts=3)
    arm = {"1": drawn(rng, 10)["1"], "9": [[1]]}
    assert (compare(plain, arm).prompts, compare(plain, arm).samples) == (1, 10)
    assert compare(plain, {}).to_json()["p"] == 1


def test_an_output_that_ends_early_differs_from_one_that_does_not():
    told = compare({"a": [[1, 2, 3, 4]] * 40}, {"a": [[1, 2]] * 40})
    assert told.differs
    assert compare({"a": [[1, 2]] * 40}, {"a": [[1, 2]] * 40}).p == 1
