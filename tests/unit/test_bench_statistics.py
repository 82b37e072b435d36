"""Repeats: ratios whose 95 % intervals hold the truth in 95 of 100 runs, also at five pairs, and what is not stable."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean, stdev

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from support.bench_run import unhurried

from ddtool.bench import statistics
from ddtool.bench.statistics import paired_ratio, stability, trend_p, unpaired_ratio

TRUTH = 1.1
TRIALS = 2000
speed = st.floats(1, 1e4)
pairs = st.lists(st.tuples(speed, speed), min_size=1, max_size=12)

# What repeats of a throughput look like: relative noise of repeat i of n.
Noise = Callable[[random.Random, float, int], float]
NOISE: dict[str, Noise] = {
    "normal": lambda rng, i, n: rng.gauss(0, 0.02),
    "heavy tails": lambda rng, i, n: 0.02 * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 1 / 1.5)),
    "never faster, sometimes slower": lambda rng, i, n: -0.02 * rng.expovariate(1),
    "one repeat of ten is 20 % slower": lambda rng, i, n: rng.gauss(0, 0.005) - 0.2 * (rng.random() < 0.1),
    "both arms slow down over the run": lambda rng, i, n: rng.gauss(0, 0.01) - 0.1 * i / n,
}


def experiments(noise: Noise, n: int, trials: int) -> list[tuple[list[float], list[float]]]:
    """Alternating arms, of which the first truly is 1.1 times as fast; who goes first changes with every repeat."""
    rng = random.Random(7)
    found = []
    for _ in range(trials):
        ours = [110 * math.exp(noise(rng, i + (i % 2) / 2, n)) for i in range(n)]
        base = [100 * math.exp(noise(rng, i + (1 - i % 2) / 2, n)) for i in range(n)]
        found.append((ours, base))
    return found


@pytest.mark.parametrize("n", [5, 6, 10, 20])
@pytest.mark.parametrize("kind", NOISE)
def test_intervals_hold_the_truth_as_often_as_they_say(kind, n):
    held = 0
    for ours, base in experiments(NOISE[kind], n, TRIALS // 2 if n == 20 else TRIALS):
        ratio = paired_ratio(ours, base, [0] * n)
        held += ratio.low <= TRUTH <= ratio.high
    assert held / (TRIALS // 2 if n == 20 else TRIALS) > 0.93


def test_the_bootstrap_does_not_which_is_why_it_is_not_used():
    rng, held = random.Random(1), 0
    for ours, base in experiments(NOISE["normal"], 5, 400):
        logs = [math.log(a / b) for a, b in zip(ours, base, strict=True)]
        means = sorted(fmean(rng.choices(logs, k=5)) for _ in range(200))
        held += math.exp(means[5]) <= TRUTH <= math.exp(means[194])
    assert held / 400 < 0.9


@pytest.mark.parametrize("starts", [5, 8])
def test_with_five_starts_the_interval_is_over_starts(starts):
    """Each start of a server has a speed of its own, and repeats only repeat it."""
    rng, held, pooled = random.Random(3), 0, 0
    visits = [visit for visit in range(starts) for _ in range(3)]
    for _ in range(TRIALS):
        own = [rng.gauss(0, 0.03) for _ in range(starts)]
        ours = [110 * math.exp(own[visit] + rng.gauss(0, 0.005)) for visit in visits]
        base = [100 * math.exp(rng.gauss(0, 0.005)) for _ in visits]
        held += (one := paired_ratio(ours, base, visits)).low <= TRUTH <= one.high
        pooled += (one := paired_ratio(ours, base, [0] * len(visits))).low <= TRUTH <= one.high
    assert held / TRIALS > 0.93
    assert pooled / TRIALS < 0.8, "repeats of one start as if they were independent"


def test_fewer_than_five_pairs_give_no_interval():
    ratio = paired_ratio([110, 111, 112, 113], [100, 100, 100, 100], [0] * 4)
    assert (ratio.low, ratio.high, ratio.pairs) == (None, None, 4)
    assert ratio.ratio == pytest.approx(1.11494, abs=1e-5)


def test_by_hand():
    """Logs 0, 0, 0, 0 and ln 2: mean ln(2)/5, standard error ln(2)/5 as well, t(4) = 2.776."""
    ratio = paired_ratio([1, 1, 1, 1, 2], [1] * 5, [0] * 5)
    step = math.log(2) / 5
    assert ratio.ratio == pytest.approx(2**0.2)
    assert ratio.low == pytest.approx(math.exp(step - 2.7764451 * step))
    assert ratio.high == pytest.approx(math.exp(step + 2.7764451 * step))


@unhurried
@given(pairs)
def test_a_ratio_turned_round_is_its_inverse(taken):
    ours, base = [a for a, _ in taken], [b for _, b in taken]
    starts = [number % 2 for number in range(len(taken))]
    one, other = paired_ratio(ours, base, starts), paired_ratio(base, ours, starts)
    assert one.ratio * other.ratio == pytest.approx(1)
    if one.low is not None:
        assert one.low * other.high == pytest.approx(1)
        assert one.low <= one.ratio * (1 + 1e-9) <= one.high * (1 + 1e-6)


@unhurried
@given(pairs, st.randoms())
def test_the_order_of_pairs_does_not_matter(taken, rng):
    mixed = rng.sample(taken, len(taken))
    one, other = (
        paired_ratio([a for a, _ in order], [b for _, b in order], [0] * len(order))
        for order in (taken, mixed)
    )
    assert one.ratio == pytest.approx(other.ratio)
    assert (one.low is None) == (other.low is None)


@pytest.mark.parametrize(("ours", "base"), [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_what_is_no_pair_is_refused(ours, base):
    with pytest.raises(ValueError, match="pairs of positive"):
        paired_ratio(ours, base, [0] * len(ours))


@unhurried
@given(st.floats(0.5, 300))
def test_students_t_is_scipys(freedom):
    assert statistics.student(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=1e-9)


@unhurried
@given(st.lists(st.lists(st.floats(-5, 5), min_size=2, max_size=5), min_size=2, max_size=4))
def test_the_f_test_is_scipys(groups):
    means = [fmean(group) for group in groups]
    if min(max(group) - min(group) for group in groups) > 1e-3 and max(means) - min(means) > 1e-3:
        assert statistics.groups_p(groups) == pytest.approx(scipy.stats.f_oneway(*groups).pvalue, rel=1e-6)


@unhurried
@given(st.integers(0, 12), st.integers(0, 30), st.integers(0, 12), st.integers(0, 30))
def test_the_surplus_test_is_fishers(hits, misses, base_hits, base_misses):
    table = [[hits, misses], [base_hits, base_misses]]
    exact = scipy.stats.fisher_exact(table, alternative="greater").pvalue
    assert statistics.surplus_p(hits, hits + misses, base_hits, base_hits + base_misses) == pytest.approx(
        exact
    )


@unhurried
@given(st.permutations(range(7)))
def test_the_trend_test_is_kendalls(order):
    exact = scipy.stats.kendalltau(range(7), order, method="exact").pvalue
    assert trend_p(order) == pytest.approx(exact)


def test_between_runs_it_is_welchs():
    a, b = [100.0, 101, 103, 99, 102, 100], [110.0, 116, 109, 113, 118]
    test = scipy.stats.ttest_ind([*map(math.log, b)], [*map(math.log, a)], equal_var=False)
    low, high = test.confidence_interval(0.95)
    ratio = unpaired_ratio(b, a)
    assert (ratio.low, ratio.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))
    assert ratio.pairs == 5
    assert unpaired_ratio(b, a[:4]).low is None
    assert unpaired_ratio([2.0] * 5, [1.0] * 5) == statistics.Ratio(2, 2, 2, 5)


def test_starts_that_differ_more_than_repeats_are_named():
    ours = [110, 111, 109, 121, 122, 120]
    assert paired_ratio(ours, [100] * 6, [0, 0, 0, 1, 1, 1]).starts_differ
    assert not paired_ratio(ours, [100] * 6, [0, 1, 0, 1, 0, 1]).starts_differ


def test_stability():
    assert stability([100, 101, 99, 100, 102]).stable
    assert not stability([100, 101, 88, 100, 102]).stable, "12 % apart"
    assert not stability([100, 101]).stable, "two values say nothing"
    assert stability([100, 101]).spread is None
    assert stability([0, 0, 0]).spread is None


def test_a_drift_is_a_steady_change_that_chance_does_not_make():
    assert stability([100, 99, 98, 97, 96]).drift == pytest.approx(96.5 / 99.5 - 1)
    assert stability([100, 98, 99, 96, 97]).drift is None, "one order of ten falls as much by chance"
    assert stability([100, 99.9, 99.8, 99.7, 99.6]).drift is None, "too small to matter"
    assert stability([100, 98, 96]).drift is None, "three values always have an order"


@unhurried
@given(st.lists(speed, min_size=3, max_size=12))
def test_a_steady_fall_turned_round_is_a_steady_rise(values):
    assert trend_p(values) == pytest.approx(trend_p(values[::-1]))
    assert 0 < trend_p(values) <= 1


def test_the_best_of_several_has_a_wider_interval() -> None:
    """5 pairs, logarithms 0.01 to 0.05: t is 2.776 for one arm, and 4.604 (99 %) for the best of five."""
    ours = [math.exp(0.01 * step) for step in range(1, 6)]
    alone, picked = (paired_ratio(ours, [1.0] * 5, [*range(5)], picked_from=arms) for arms in (1, 5))
    error = stdev([0.01, 0.02, 0.03, 0.04, 0.05]) / math.sqrt(5)
    assert (alone.low, picked.low) == (
        pytest.approx(math.exp(0.03 - 2.776 * error), rel=1e-4),
        pytest.approx(math.exp(0.03 - 4.604 * error), rel=1e-4),
    )
    assert alone.ratio == picked.ratio
