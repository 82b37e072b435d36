"""An arm that should draw and is greedy after prefill is told by its answers; one that draws, however oddly, is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from support.bench_run import cell, one_pass, run, sample

from ddtool.bench import lossless
from ddtool.bench.lossless_fallback import fell_back

Json = dict[str, Any]
Outputs = dict[str, list[list[int]]]


def drawn(rng: random.Random, likeliest: float, count: int = 60) -> Outputs:
    """Two prompts; the first token is one of three, each later one is 7 with probability `likeliest`, else 8."""
    return {
        prompt: [
            [rng.choice([1, 2, 3]), *rng.choices([7, 8], [likeliest, 1 - likeliest], k=3)]
            for _ in range(count)
        ]
        for prompt in "ab"
    }


@pytest.mark.parametrize(
    ("plain", "arm", "expected"),
    [
        (0.6, 1.0, True),
        (0.6, 0.99, True),  # near ties may part some, where batches of other sizes round otherwise
        (0.6, 0.8, False),  # a lower temperature draws still
        (0.6, 0.6, False),
        (0.6, 0.0, True),  # always the same, though not plain decoding's likeliest
        (1.0, 1.0, False),  # the prompts leave no choice: nothing tells greedy decoding from drawing
        (1.0, 0.6, False),
    ],
)
def test_greedy_answers_are_told_from_drawn_ones(plain, arm, expected):
    rng = random.Random(3)
    assert fell_back(drawn(rng, plain), drawn(rng, arm)) == expected


def test_what_comes_late_in_an_answer_does_not_count():
    rng = random.Random(3)
    plain, arm = drawn(rng, 0.6), drawn(rng, 1.0)
    long = {prompt: [[*answer, 7, 7, 7, 7, rng.choice([7, 8])] for answer in arm[prompt]] for prompt in arm}
    assert fell_back(plain, long)


def test_few_answers_say_nothing():
    rng = random.Random(3)
    assert not fell_back(drawn(rng, 0.6), drawn(rng, 1.0, count=6))
    assert not fell_back(drawn(rng, 0.6), {"a": [[one] for one in range(60)]}), "no two begin alike"
    assert not fell_back({}, {})


def lines(arm: str, answers: Outputs, **fields: Any) -> list[Json]:
    samples: Sequence[Json] = [
        sample([2, 1], prompt=prompt, output_ids=ids, **fields)
        for prompt, each in answers.items()
        for ids in each
    ]
    return one_pass(f"{arm}/code-c16-t1/v0/r0", samples)


@pytest.mark.parametrize(("likeliest", "expected"), [(1.0, True), (0.2, False)])
def test_the_verdict_says_so(likeliest, expected):
    rng = random.Random(3)
    hot = cell("code-c16-t1", concurrency=16, temperature=1.0, prompts=120)
    plain = lines("plain", drawn(rng, 0.6), verify_ct=None)
    (told,) = lossless.judged(
        run(hot, arms=("plain", "chain")), [*plain, *lines("chain", drawn(rng, likeliest))], None, "bfloat16"
    )
    assert told["verdict"] == "differs"
    assert ("as with greedy decoding" in told["words"]) == expected
