"""Does speculation change what is said? Near ties, real differences, arms that did nothing, and too few to say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench_run import cell, one_pass, run, sample, unhurried

from ddtool.bench import judge, lossless
from ddtool.bench.lossless import Output
from ddtool.errors import DdtoolError

Json = dict[str, Any]
PROMPTS = [f"{number:016x}" for number in range(40)]
LIKELY = [(7, -0.5), (8, -0.6), (9, -2.0)]  # what plain decoding thinks of every position


def ask(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
    return LIKELY


def outputs(count: int, changed: Mapping[int, Sequence[int]] | None = None) -> list[Output]:
    """`count` outputs 7 7 7 7, but for those in `changed`."""
    return [
        Output(number, PROMPTS[number], tuple((changed or {}).get(number, (7, 7, 7, 7))))
        for number in range(count)
    ]


def verdict(count: int, changed: Mapping[int, Sequence[int]] | None = None, width: float = 0.125) -> str:
    return lossless.compare(outputs(count), outputs(count, changed), ask, width).verdict


def test_verdicts():
    assert verdict(32) == "equal"
    assert verdict(31) == "too-few"
    assert verdict(32, {3: (7, 8, 1, 1)}) == "near-ties"
    assert verdict(31, {3: (7, 8, 1, 1)}) == "too-few"
    assert verdict(32, {3: (7, 9, 7, 7)}) == "differs"
    assert verdict(1, {0: (7, 9, 7, 7)}) == "differs", "one real difference is enough"
    assert verdict(32, {3: (7, 5, 7, 7)}) == "differs", "a token that is not among the likeliest"
    assert verdict(32, {3: (7, 7)}) == "differs", "an output that ends early"
    assert verdict(32, {3: (7, 8, 1, 1)}, width=lossless.tie_width("float32")) == "differs"


def test_prompts_asked_twice_count_once():
    twice = [*outputs(16), *outputs(16)]
    found = lossless.compare(outputs(16), twice, ask, 0.125)
    assert (found.samples, found.equal, found.verdict) == (32, 32, "too-few")


def test_a_divergence_says_where_and_how_far():
    found = lossless.compare(outputs(3), outputs(3, {1: (7, 7, 8, 9), 2: (7, 7, 7, 7, 4)}), ask, 0.125)
    assert [one.to_json() for one in found.divergences] == [
        {"index": 1, "position": 2, "expected": 7, "found": 8, "gap": 0.1, "near_tie": True},
        {"index": 2, "position": 4, "expected": None, "found": 4, "gap": None, "near_tie": False},
    ]
    assert found.equal == 1


def test_the_judge_is_asked_after_what_both_said():
    asked = []

    def note(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        asked.append((prompt, [*said]))
        return LIKELY

    lossless.compare(outputs(2), outputs(2, {1: (7, 7, 8, 9)}), note, 0.125)
    assert asked == [(PROMPTS[1], [7, 7])]


def test_the_gap_is_to_the_judges_best_token():
    """The judge, asked afresh, may prefer a third token: both others are measured by it."""
    found = lossless.compare(
        outputs(1), outputs(1, {0: (9,)}), lambda *_: [(1, -0.1), (7, -0.2), (9, -0.7)], 1
    )
    assert found.divergences[0].gap == 0.6


def test_without_a_judge_a_difference_is_not_judged():
    assert lossless.compare(outputs(32), outputs(32, {3: (7, 8, 1, 1)}), None, 0.125).verdict == "not-judged"
    assert lossless.compare(outputs(32), outputs(32), None, 0.125).verdict == "equal"


@unhurried
@given(st.lists(st.integers(1, 3), max_size=6), st.lists(st.integers(1, 3), max_size=6))
def test_whatever_differs_is_found_where_it_begins(expected, found):
    told = lossless.compare([Output(0, "p", tuple(expected))], [Output(0, "p", tuple(found))], ask, 1)
    assert (expected == found) == (told.equal == 1)
    for one in told.divergences:
        assert expected[: one.position] == found[: one.position]
        assert expected[one.position : one.position + 1] != found[one.position : one.position + 1]


def lines(
    arm: str, key: str, ids: Mapping[int, Sequence[int]] | None = None, count: int = 32, **fields: Any
) -> list[Json]:
    samples = [
        sample([2, 1], prompt=PROMPTS[number], output_ids=[*(ids or {}).get(number, (7, 7, 7, 7))], **fields)
        for number in range(count)
    ]
    return one_pass(f"{arm}/{key}/v0/r0", samples)


CELLS = [cell("code-c16", concurrency=16, prompts=32), cell("code-c1", prompts=32)]


def test_a_run_is_judged_against_plain_decoding_at_the_lowest_load():
    told = lossless.judged(
        run(*CELLS, arms=("plain", "tree:32")),
        [
            *lines("plain", "code-c1", verify_ct=None),
            *lines("plain", "code-c16", {5: (8, 8, 8, 8)}, verify_ct=None),
            *lines("tree:32", "code-c1"),
            *lines("tree:32", "code-c16", {5: (8, 8, 8, 8), 6: (7, 7, 9, 9)}),
        ],
        ask,
        "bfloat16",
    )
    assert [(one["arm"], one["cell"], one["equal"], one["verdict"]) for one in told] == [
        ("plain", "code-c16", 31, "near-ties"),
        ("tree:32", "code-c16", 30, "differs"),
        ("tree:32", "code-c1", 32, "equal"),
    ]
    assert told[0]["words"] == (
        "31 of 32 outputs are plain decoding's, token for token; the others begin to differ at near ties "
        "(gaps to 0.100 of 0.125)"
    )
    assert told[1]["words"] == (
        "30 of 32 outputs are plain decoding's, token for token; 1 differ by more than a near tie, the earliest at "
        "token 2, 1.500 below its best"
    )


@pytest.mark.parametrize(
    ("by_plain", "by_tree", "expected"),
    [
        (0, 1, "differs"),
        (3, 4, "load-dependent"),  # no more than batching does alone
        (3, 14, "differs"),
        (0, 0, "equal"),
    ],
)
def test_what_batching_alone_does_is_not_laid_on_speculation(by_plain, by_tree, expected):
    def real(count: int) -> dict[int, tuple[int, ...]]:
        return dict.fromkeys(range(count), (7, 9, 9, 9))

    asked = []

    def note(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        asked.append((prompt, *said))
        return LIKELY

    told = lossless.judged(
        run(*CELLS, arms=("plain", "tree:32")),
        [
            *lines("plain", "code-c1", verify_ct=None),
            *lines("plain", "code-c16", real(by_plain), verify_ct=None),
            *lines("tree:32", "code-c1"),
            *lines("tree:32", "code-c16", real(by_tree)),
        ],
        note,
        "bfloat16",
    )
    assert [one["verdict"] for one in told] == ["load-dependent" if by_plain else "equal", expected, "equal"]
    assert ("plain decoding itself does so in 3 of 32" in told[1]["words"]) == (expected == "load-dependent")
    assert len(asked) == len(set(asked)), "each place is asked about once"


def test_an_idle_arm_that_says_something_else_differs():
    (told,) = lossless.judged(
        run(CELLS[1], arms=("plain", "chain")),
        [*lines("plain", "code-c1", verify_ct=None), *lines("chain", "code-c1", {3: (9, 9)}, verify_ct=None)],
        ask,
        "bfloat16",
    )
    assert told["verdict"] == "differs"
    assert "differ by more than a near tie" in told["words"]


def test_an_arm_that_did_nothing_is_not_lossless():
    plan = run(CELLS[1], arms=("plain", "chain", "tree:32"))
    (chain, tree) = lossless.judged(
        plan,
        [
            *lines("plain", "code-c1", verify_ct=None),
            *lines("chain", "code-c1", verify_ct=None),
            *lines(
                "tree:32", "code-c1", chunks=[[0.1, 1], [0.2, 2], [0.3, 3]], verify_ct=2, completion_tokens=3
            ),
        ],
        ask,
        "bfloat16",
    )
    assert (chain["verdict"], tree["verdict"]) == ("identical-by-accident?", "identical-by-accident?")
    assert "no verify round" in chain["words"]
    assert "no drafted token was ever accepted" in tree["words"]


def test_what_was_not_kept_is_not_judged():
    plan = run(CELLS[1], arms=("plain", "chain"))
    assert lossless.judged(plan, lines("chain", "code-c1"), ask, "bfloat16") == []
    assert lossless.judged(plan, one_pass("plain/code-c1/v0/r0", [sample()]), ask, "bfloat16") == []


def draw(rng: random.Random, weights: Sequence[float], count: int) -> list[list[int]]:
    return [rng.choices(range(len(weights)), weights, k=4) for _ in range(count)]


def hot(arm: str, drawn: list[list[int]], **fields: Any) -> list[Json]:
    samples = [sample([2, 1], prompt=PROMPTS[n % 2], output_ids=ids, **fields) for n, ids in enumerate(drawn)]
    return one_pass(f"{arm}/code-c16-t1/v0/r0", samples)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([0.6, 0.3, 0.1], "equal"), ([0.3, 0.6, 0.1], "differs"), (None, "identical-by-accident?")],
)
def test_at_a_temperature_the_distribution_is_judged(weights, expected):
    rng = random.Random(2)
    plain = draw(rng, [0.6, 0.3, 0.1], 200)
    tree = draw(rng, weights, 200) if weights else plain
    hot_cell = cell("code-c16-t1", concurrency=16, temperature=1.0, prompts=200)
    told = lossless.judged(
        run(hot_cell, arms=("plain", "tree:32")),
        [*hot("plain", plain, verify_ct=None), *hot("tree:32", tree)],
        None,
        "bfloat16",
    )
    assert [(one["arm"], one["verdict"], one["divergences"]) for one in told] == [("tree:32", expected, [])]
    assert told[0]["distribution"]["samples"] == 200
    if weights:
        assert ("no difference" in told[0]["words"]) == (expected == "equal")


def test_few_samples_at_a_temperature_say_nothing():
    rng = random.Random(2)
    hot_cell = cell("code-c16-t1", concurrency=16, temperature=1.0, prompts=6)
    (told,) = lossless.judged(
        run(hot_cell, arms=("plain", "tree:32")),
        [
            *hot("plain", draw(rng, [0.5, 0.5], 6), verify_ct=None),
            *hot("tree:32", draw(rng, [0.5, 0.5], 6)),
        ],
        None,
        "bfloat16",
    )
    assert told["verdict"] == "too-few"


def test_the_judge_asks_a_plain_server_for_log_probabilities():
    posted = []

    def post(path: str, body: Mapping[str, Any]) -> Any:
        posted.append((path, body))
        if path == "/tokenize":
            return {"tokens": [1, 2]}
        return {"meta_info": {"output_top_logprobs": [[[-0.7, 8, None], [-0.5, 7, None]]]}}

    asked = judge.judge(post, {"a": {"text": "hello"}, "b": {"input_ids": [5]}})
    assert asked("a", [3]) == [(7, -0.5), (8, -0.7)]
    asked("a", [3, 4])
    asked("b", [])
    assert [path for path, _ in posted] == ["/tokenize", "/generate", "/generate", "/generate"], (
        "tokenized once"
    )
    assert [body["input_ids"] for path, body in posted if path == "/generate"] == [
        [1, 2, 3],
        [1, 2, 3, 4],
        [5],
    ]
    assert posted[1][1]["return_logprob"]
    assert posted[1][1]["sampling_params"]["temperature"] == 0


@pytest.mark.parametrize("answer", [{}, "refused", {"meta_info": {"output_top_logprobs": []}}, None])
def test_a_server_without_log_probabilities_is_no_judge(answer):
    with pytest.raises(DdtoolError, match="no log-probabilities"):
        judge.likeliest(answer)
