"""From the lines of a run to its result, and two results side by side."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench_run import cell, one_pass, run, sample, speeds, unhurried

from ddtool.bench.compare import compare
from ddtool.bench.results import summarise
from ddtool.errors import DdtoolError, UsageError

NAME = "plain/code-c1/v0/r0"


def only(lines: list[Any], **changes: Any) -> dict[str, Any]:
    """The result of a run of one cell."""
    return summarise(run(cell(**changes)), lines)


def words(result: dict[str, Any], about: str) -> list[str]:
    return [warning for warning in result["warnings"] if about in warning]


def test_medians_ratios_and_what_they_rest_on():
    lines = [
        *speeds("plain", [100, 104, 96, 100, 102]),
        *speeds("chain", [200, 208, 192, 200, 204]),
        *speeds("tree:32", [250, 260, 240, 250, 255]),
    ]
    result = only(lines)
    arms = result["cells"][0]["arms"]
    assert {name: arm["tok_s"]["median"] for name, arm in arms.items()} == {
        "plain": 100,
        "chain": 200,
        "tree:32": 250,
    }
    assert arms["chain"]["tok_s"]["values"] == [200, 208, 192, 200, 204]
    assert result["cells"][0]["ratios"] == [
        {
            "arm": "plain",
            "base": "chain",
            "metric": "tok_s",
            "ratio": 0.5,
            "low": 0.5,
            "high": 0.5,
            "pairs": 5,
        },
        {
            "arm": "tree:32",
            "base": "chain",
            "metric": "tok_s",
            "ratio": 1.25,
            "low": 1.25,
            "high": 1.25,
            "pairs": 5,
        },
    ]
    assert (arms["chain"]["passes"], arms["chain"]["requests"], arms["chain"]["verify_steps"]) == (5, 5, 15)
    assert (arms["chain"]["stable"], arms["chain"]["spread"]) == (True, 0.08)
    assert (result["schema"], result["lossless"], result["objective"]) == ("ddtool.bench/1", None, None)


def test_pairs_are_of_the_same_repeat_and_others_are_left_out():
    lines = [*speeds("plain", [100, 50]), *speeds("chain", [200, 100, 500])]
    assert only(lines)["cells"][0]["ratios"][0] == {
        "arm": "plain",
        "base": "chain",
        "metric": "tok_s",
        "ratio": 0.5,
        "low": None,
        "high": None,
        "pairs": 2,
    }
    alone = only([*speeds("plain", [100], visit=1), *speeds("chain", [200])])
    assert words(alone, "no repeat in common")


def test_what_few_repeats_cannot_say_is_said():
    result = only([*speeds("plain", [100, 100, 100]), *speeds("chain", [200, 200, 200])])
    (said,) = words(result, "95 %")
    assert said == "3 pair(s) of passes give no 95 % interval of a ratio; it takes 5: --repeats 5"
    assert words(result, "tree:32 was not measured")
    assert words(only(speeds("plain", [100])), "1 pass(es) of an arm cannot show whether tok/s is stable")


def test_spread_and_drift_are_named():
    wide = [100, 130, 100]
    result = only([*speeds("plain", [100, 97, 94, 91, 88]), *speeds("chain", wide), *speeds("tree:32", wide)])
    assert words(result, "plain: tok/s drifts by -9%")
    (said,) = words(result, "lie far apart")
    assert said.endswith(
        ": repeats of tok/s lie far apart, 13% in plain, 30% in chain, 30% in tree:32: the machine was not quiet"
    )


def test_starts_that_differ_are_named():
    ours = [*speeds("tree:32", [110, 111, 109]), *speeds("tree:32", [121, 122, 120], visit=1)]
    base = [*speeds("chain", [100, 100, 100]), *speeds("chain", [100, 100, 100], visit=1)]
    assert words(only([*ours, *base]), "differs between server starts")


def test_a_tail_of_few_requests_is_none():
    assert words(only(speeds("plain", [100])), "fewer than 100 requests in code-c1: p99")
    assert not words(only(speeds("plain", [100])), "plain: p99")
    many = one_pass(NAME, [sample() for _ in range(100)])
    assert not words(only(many), "p99")


def test_only_attempts_that_ended_count():
    broken = one_pass(NAME, [sample()], seconds=99)[:-1]
    whole = one_pass(NAME, [sample()], attempt=2, seconds=2)
    assert only([*broken, *whole])["cells"][0]["arms"]["plain"]["tok_s"]["values"] == [2.0]
    nothing = only(broken)
    assert nothing["cells"][0]["arms"] == {}
    assert words(nothing, f"pass {NAME} did not end")


def test_torn_lines_and_rubbish_are_counted_and_left_out():
    lines = [json.dumps(line) for line in one_pass(NAME, [sample()])]
    rubbish = [lines[1][:40], "", "null", "[]", "{}", '{"kind":"sample"}', b"\xff\xfe", "{" * 5000, 7]
    result = only([*rubbish[:5], *lines, *rubbish[5:]])
    assert result["cells"][0]["arms"]["plain"]["passes"] == 1
    assert words(result, "9 line(s)")


@pytest.mark.parametrize(
    "broken",
    [
        {"chunks": [[0.2, 1], [0.1, 2]]},
        {"chunks": [[0.1, 2], [0.2, 1]]},
        {"chunks": "torn"},
        {"sent_s": -1},
        {"index": "0"},
        {"prompt": None},
    ],
)
def test_a_sample_with_impossible_fields_is_no_sample_and_its_pass_no_pass(broken):
    lines = one_pass(NAME, [sample(), sample()])
    lines[1] = {**lines[1], **broken}
    result = only(lines, prompts=2)
    assert result["cells"][0]["arms"] == {}
    assert words(result, "lacks 1 of its requests")


def test_a_pass_that_lost_its_last_request_does_not_count():
    assert words(only(one_pass(NAME, [sample()]), prompts=2), "lacks 1 of its requests")


def test_a_request_recorded_twice_is_an_error():
    lines = one_pass(NAME, [sample(), sample()])
    with pytest.raises(DdtoolError, match="request 0 of pass plain/code-c1/v0/r0 was recorded twice"):
        only([*lines, lines[1]])


def test_a_pass_that_ended_twice_counts_once():
    lines = [*one_pass(NAME, [sample()]), *one_pass(NAME, [sample()], attempt=2, seconds=4)]
    result = only(lines)
    assert result["cells"][0]["arms"]["plain"]["tok_s"]["values"] == [1.0]
    assert words(result, "ended 2 times")


def test_failures_merged_chunks_and_foreign_requests_are_named():
    merged = sample([3, 1], chunks=[[0.3, 5]])
    counted = {"sglang:ddtree_tokens_total": 12.0, "sglang:ddtree_verify_total": 5.0}
    name = "tree:32/code-c1/v0/r0"
    mixed = only(one_pass(name, [merged, sample([3], error="reset")], metrics=counted))
    assert words(mixed, "1 of 2 requests failed")
    assert words(mixed, "several rounds as one chunk in 1 of 1 requests; the histogram leaves those out")
    assert not words(mixed, "the engine counted"), "a failed request has tokens that nobody reported"
    foreign = only(one_pass(name, [sample([3, 1])], metrics=counted))
    assert words(foreign, "the engine counted 12 tokens in 5 rounds during a pass, its requests 4 in 2")
    counted = {"sglang:ddtree_tokens_total": 4.0, "sglang:ddtree_verify_total": 2.0}
    assert not words(only(one_pass(name, [sample([3, 1])], metrics=counted)), "the engine")
    told = only(one_pass(name, [sample([3, 1], chunks=[[0.3, 5]], drafts_histogram=[1, 0, 1])]))
    assert words(told, "their rounds are counted by the server's own histogram")
    assert words(only(one_pass(name, [sample([3, 1], drafts_histogram=[0, 2])])), "disagree in 1")
    silent = only(one_pass(name, [sample([3, 1]), sample([3, 1], verify_ct=None)]))
    assert words(silent, "1 requests report no verify rounds")


def test_goodput_needs_an_slo():
    lines = speeds("plain", [80, 80])
    assert summarise(run(cell()), lines)["cells"][0]["arms"]["plain"]["goodput"] is None
    bounded = summarise(run(cell()), lines, {"ttft": 150})
    assert (bounded["cells"][0]["arms"]["plain"]["goodput"], bounded["slo"]) == (10.0, {"ttft": 150})


def test_what_the_run_already_knows_is_kept():
    told = summarise(run(cell(), taints=["warm cache"], warnings=["eager"], fingerprint={"card": "x"}), [])
    assert (told["taints"], told["warnings"][0], told["fingerprint"]) == (
        ["warm cache"],
        "eager",
        {"card": "x"},
    )


@unhurried
@given(st.randoms(), st.integers(0, 20))
def test_neither_order_nor_broken_attempts_nor_torn_lines_change_a_number(rng: random.Random, cut: int):
    lines = [
        line
        for number, arm in enumerate(("plain", "chain"))
        for repeat in range(2)
        for line in one_pass(
            f"{arm}/code-c1/v0/r{repeat}",
            [sample([1, number + 1]), sample([2])],
            attempt=2,
            seconds=1 + repeat + number,
            unix=repeat,
        )
    ]
    broken = [{**line, "attempt": 1} for line in lines if line["kind"] != "end"][:cut]
    mixed = [*broken, *lines]
    rng.shuffle(mixed)
    texts = [json.dumps(line) for line in mixed] + [json.dumps(lines[1])[: 5 + cut]]
    plain, shuffled = only(lines, prompts=2), only(texts, prompts=2)
    assert shuffled["cells"] == plain["cells"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)


@unhurried
@given(
    st.integers(0, 3),
    st.sampled_from(
        [
            *sample(),
            "drafts_histogram",
            "output",
            "output_ids",
            "seconds",
            "kind",
            "pass",
            "attempt",
            "index",
            "unix",
        ]
    ),
    JSON,
)
def test_no_field_of_a_line_can_break_the_reading(number: int, name: str, value: Any):
    lines = one_pass(NAME, [sample(drafts_histogram=[3]), sample(verify_ct=None)])
    lines[number][name] = value
    with suppress(DdtoolError):  # one request twice
        assert only(lines, prompts=2)["schema"] == "ddtool.bench/1"


def result(values: list[float], **changes: Any) -> dict[str, Any]:
    fingerprint = {"card": "1 x NVIDIA H200", "prompts": {"code": "aa"}, "driver": "580", **changes}
    return summarise(run(cell(), fingerprint=fingerprint), speeds("tree:32", values))


def test_two_runs_side_by_side():
    a, b = result([100, 101, 99, 100, 100]), result([110, 111, 109, 110, 110], driver="590")
    told = compare(a, b)
    assert told["schema"] == "ddtool.bench.compare/1"
    assert told["differs"] == [{"what": "driver", "a": "580", "b": "590"}]
    arm = told["cells"][0]["arms"]["tree:32"]
    assert (arm["tok_s"]["a"], arm["tok_s"]["b"]) == (100, 110)
    assert arm["tok_s"]["ratio"] == pytest.approx(1.1, abs=0.001)
    assert 1.08 < arm["tok_s"]["low"] < 1.1 < arm["tok_s"]["high"] < 1.12
    assert arm["accept"] == {"a": 2.3333, "b": 2.3333}
    turned = compare(b, a)["cells"][0]["arms"]["tree:32"]["tok_s"]
    assert turned["ratio"] * arm["tok_s"]["ratio"] == pytest.approx(1, abs=1e-3)
    assert turned["low"] * arm["tok_s"]["high"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (result([100] * 5, card="8 x NVIDIA H200"), "card 1 x NVIDIA H200 against 8 x NVIDIA H200"),
        (result([100] * 5, prompts={"code": "bb"}), "prompts.code aa against bb"),
    ],
)
def test_other_cards_and_prompts_are_refused_unless_forced(other, why):
    with pytest.raises(UsageError, match="measured different things") as raised:
        compare(result([100] * 5), other)
    assert why in raised.value.message
    assert compare(result([100] * 5), other, force=True)["warnings"] == [f"not comparable: {why}"]


@pytest.mark.parametrize("change", [{"temperature": 1.0}, {"prompts": 9}, {"max_tokens": 99}])
def test_a_cell_that_asks_for_something_else_is_refused(change):
    other = result([100] * 5)
    other["cells"][0]["cell"].update(change)
    with pytest.raises(UsageError, match=f"{next(iter(change))} of code-c1"):
        compare(result([100] * 5), other)


def test_what_only_one_run_knows_is_no_reason_to_refuse():
    """`--url` sees no card; a run of two workloads shares one with a run of that one."""
    other = result([100] * 5, card=None, prompts={"code": "aa", "chat": "cc"})
    assert [one["what"] for one in compare(result([100] * 5), other)["differs"]] == ["card", "prompts.chat"]


def test_what_one_side_lacks_is_listed():
    b = result([100] * 5)
    b["cells"][0]["arms"]["plain"] = b["cells"][0]["arms"]["tree:32"]
    told = compare(result([100] * 5), b)
    assert (told["only_a"], told["only_b"]) == ([], ["code-c1/plain"])
    b["cells"][0]["cell"]["key"] = "chat-c1"
    with pytest.raises(UsageError, match="no cell in common"):
        compare(result([100] * 5), b)
