"""What one pass says: latencies as bench_serving defines them, and accept length as the engine counts it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench_run import one_pass, sample, unhurried

from ddtool.bench import metrics, records
from ddtool.errors import UsageError

NAME = "tree:32/code-c1/v0/r0"
gains = st.lists(st.integers(1, 8), min_size=1, max_size=12)


def measured(*samples: dict[str, Any], seconds: float = 1.0, **end: Any) -> metrics.Measured:
    (one,) = records.read(one_pass(NAME, samples, seconds=seconds, **end)).passes
    return metrics.measure(one)


def test_by_hand():
    """First token after 0.1 s; then 3 tokens at 0.2 s and 1 at 0.3 s; the stream ends at 0.35 s."""
    one = measured(sample([3, 1], e2e_s=0.35), seconds=0.5)
    (request,) = one.requests
    assert request.ttft_s == 0.1
    assert request.itl_s == pytest.approx([0.1 / 3] * 3 + [0.1])
    assert request.tpot_s == pytest.approx(0.25 / 4)
    assert one.tok_s == 10  # 5 tokens in 0.5 s
    assert one.tok_s_user == pytest.approx(16)
    assert one.round_ms == pytest.approx(100)  # 0.2 s from first to last token, 2 rounds
    assert metrics.latencies([one])["itl_ms"] == {"p50": 33.3333, "p95": 90.0, "p99": 98.0}


def test_the_first_token_is_prefills_and_no_rounds():
    """5 tokens in 2 rounds: the engine counts 4 tokens of 2 verified trees, where SGLang's own figure says 2.5."""
    accept = metrics.acceptance([measured(sample([3, 1]))])
    assert (accept.mean, accept.rounds, accept.histogram) == (2.0, 2, Counter({3: 1, 1: 1}))
    assert accept.by_depth == [0.5, 0.5]
    assert accept.to_json() == {"mean": 2.0, "histogram": {"1": 1, "3": 1}, "by_depth": [0.5, 0.5]}


def test_plain_decoding_accepts_nothing_and_has_a_round_a_token():
    one = measured(sample([1, 1, 1], verify_ct=None))
    assert metrics.acceptance([one]) is None
    assert one.round_ms == pytest.approx(100)


def test_an_answer_of_one_token_has_neither_round_nor_pace():
    one = measured(sample([], verify_ct=None))
    assert (one.tok_s, one.tok_s_user, one.round_ms, metrics.acceptance([one])) == (1.0, None, None, None)
    assert metrics.latencies([one])["tpot_ms"] == {"p50": None, "p95": None, "p99": None}


@pytest.mark.parametrize(
    "merged",
    [
        {"chunks": [[0.1, 1], [0.3, 5]]},  # both rounds in one chunk
        {"chunks": [[0.2, 4], [0.3, 5]]},  # prefill's token with the first round
        {"chunks": [[0.3, 5]]},
    ],
)
def test_merged_chunks_leave_the_mean_alone_and_the_histogram_to_the_server(merged):
    alone = metrics.acceptance([measured(sample([3, 1], **merged), sample([2, 2]))])
    assert (alone.mean, alone.merged, alone.unknown) == (2.0, 1, 1)
    assert alone.histogram == Counter({2: 2})
    told = metrics.acceptance(
        [measured(sample([3, 1], **merged, drafts_histogram=[1, 0, 1]), sample([2, 2]))]
    )
    assert (told.mean, told.merged, told.unknown) == (2.0, 1, 0)
    assert told.histogram == Counter({1: 1, 2: 2, 3: 1})


def test_chunks_that_the_server_contradicts_are_counted():
    accept = metrics.acceptance([measured(sample([3, 1], drafts_histogram=[0, 2]))])
    assert (accept.unlike, accept.merged) == (1, 0)


def test_a_server_histogram_that_lacks_rounds_is_not_taken():
    accept = metrics.acceptance([measured(sample([3, 1], chunks=[[0.3, 5]], drafts_histogram=[0, 0, 1]))])
    assert accept.unknown == 1
    assert accept.to_json()["by_depth"] == []


def test_a_chunk_without_a_new_token_ends_nobodys_wait():
    one = measured(sample([3, 1], chunks=[[0.05, 0], [0.1, 1], [0.15, 1], [0.2, 4], [0.3, 5]]))
    assert one.requests[0].itl_s == pytest.approx([0.1 / 3] * 3 + [0.1])


@pytest.mark.parametrize(
    "failed",
    [
        {"error": "reset"},
        {"status": 503},
        {"status": None},
        {"finish": "abort"},
        {"chunks": [], "completion_tokens": 0},
        {"e2e_s": None},
    ],
)
def test_a_failed_request_counts_as_an_error_and_nowhere_else(failed):
    one = measured(sample([3]), sample([3], **failed), seconds=2)
    assert (one.failed, one.tok_s, len(one.requests)) == (1, 2.0, 1)


def test_goodput_counts_requests_within_every_bound():
    one = measured(sample([1]), sample([1], step_s=0.3), seconds=2)
    assert one.good({"ttft": 100}) == 0.5
    assert one.good({"ttft": 1000, "tpot": 1000}) == 1.0
    assert one.good({"ttft": 1000, "tpot": 99}) == 0
    assert measured(sample([]), seconds=1).good({"tpot": 0.001}) == 1, "one token has no tpot"


@pytest.mark.parametrize("slo", [{"itl": 5}, {"ttft": 0}, {"ttft": -1}, {"e2e": math.nan}])
def test_a_bound_that_is_none_is_refused(slo):
    with pytest.raises(UsageError, match="not a bound"):
        metrics.checked_slo(slo)


def test_gpu_is_the_most_memory_and_the_mean_power_over_time():
    passes = [
        measured(sample(), seconds=1, gpu={"memory_mib": 100, "power_w": 400, "others": []}),
        measured(sample(), seconds=3, gpu={"memory_mib": 120, "power_w": 200, "others": []}),
        measured(sample(), seconds=9),
    ]
    assert metrics.gpu(passes) == {"memory_mib": 120, "power_w": 250.0}
    assert metrics.gpu(passes[2:]) is None


def test_the_engines_counters_are_read_whatever_their_labels():
    counted = {
        "sglang:ddtree_tokens_total": 40.0,
        "sglang:ddtree_verify_total": 10.0,
        "sglang:other_total": 7.0,
    }
    assert metrics.engine_says(measured(sample(), metrics=counted)) == (40, 10)
    labelled = {
        'sglang:ddtree_tokens_total{engine="0"}': 30.0,
        'sglang:ddtree_tokens_total{engine="1"}': 10.0,
    }
    assert metrics.engine_says(measured(sample(), metrics={**counted, **labelled})) == (80, 10)
    assert metrics.engine_says(measured(sample())) is None


@unhurried
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_percentiles_are_numpys(values, percent):
    assert metrics.percentile(values, percent) == pytest.approx(numpy.percentile(values, percent), abs=1e-6)


def test_there_is_no_percentile_of_nothing():
    with pytest.raises(ValueError, match="nothing"):
        metrics.percentile([], 50)


@unhurried
@given(st.lists(gains, min_size=1, max_size=6))
def test_tokens_a_round_and_shares_by_depth_are_one_thing(requests):
    """What a path of depth d gives is d + 1 tokens: so the mean is 1 + the sum over depths."""
    accept = metrics.acceptance([measured(*map(sample, requests))])
    assert accept.mean == pytest.approx(1 + sum(accept.by_depth))
    assert accept.by_depth == sorted(accept.by_depth, reverse=True)
    assert sum(accept.histogram.values()) == accept.rounds == sum(map(len, requests))


@unhurried
@given(st.lists(gains, min_size=1, max_size=6), st.randoms())
def test_the_order_of_requests_does_not_matter(requests, rng):
    shuffled = rng.sample(requests, len(requests))
    one, other = (measured(*map(sample, order)) for order in (requests, shuffled))
    assert metrics.latencies([one]) == metrics.latencies([other])
    assert metrics.acceptance([one]) == metrics.acceptance([other])
    assert (one.tok_s, one.round_ms) == (other.tok_s, other.round_ms)


@unhurried
@given(gains, st.integers(0, 10))
def test_gaps_add_up_to_the_time_after_the_first_token_whatever_the_server_merges(rounds, first):
    whole = sample(rounds)
    kept = [chunk for number, chunk in enumerate(whole["chunks"]) if number % 3 == first % 3]
    kept = [*kept, whole["chunks"][-1]] if whole["chunks"][-1] not in kept else kept
    (request,) = measured({**whole, "chunks": kept}).requests
    assert math.fsum(request.itl_s) == pytest.approx(kept[-1][0] - kept[0][0])
    assert len(request.itl_s) == kept[-1][1] - kept[0][1]
