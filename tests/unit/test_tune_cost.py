"""Curves through measured rounds: the right form wins, no factor is negative, and what is said of the error holds."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtool.bench.tune.cost import (
    Experts,
    fit,
    forms,
    interpolate,
    least_squares,
    left_out,
    monotone,
    solve_normal,
)
from ddtool.bench.tune.experts import distinct, independent
from ddtool.errors import DdtoolError
from ddtool.profile.prediction import VERIFY_MS

WIDTHS = (8, 12, 16, 20, 24, 33, 48, 65)
K26 = Experts(384, 8)


def noisy(truth, seed=0, noise=0.01, widths=WIDTHS):
    dice = random.Random(seed)
    return {width: truth(width) * dice.gauss(1, noise) for width in widths}


def test_least_squares_finds_the_factors_and_leaves_out_a_term_that_would_be_negative():
    terms = {"a": lambda _: 1.0, "b": lambda n: n}
    found = least_squares(terms, {8: 10.0, 16: 12.0, 32: 16.0})
    assert found["a"] == pytest.approx(8.0)
    assert found["b"] == pytest.approx(0.25)
    falling = least_squares(terms, {8: 10.0, 16: 9.0, 32: 8.0})
    assert falling["b"] == 0.0
    assert 8.0 < falling["a"] < 10.0


def test_undetermined_factors_are_none():
    assert solve_normal([[1.0, 2.0], [1.0, 2.0]]) is None


@pytest.mark.parametrize(
    ("truth", "model"),
    [
        (lambda n: 9 + 0.12 * n, "line"),
        (lambda n: 11 + 0.4 * max(0, n - 24), "ridge at 24"),
        (lambda n: 3 + 0.02 * n + 0.1 * independent(n, 384, 8), "experts"),
    ],
)
def test_the_form_that_made_the_points_tells_them_best(truth, model):
    curve = fit(noisy(truth, noise=0.002), K26)
    assert curve.model == model
    for width in range(8, 66):
        assert curve.at(width) == pytest.approx(truth(width), rel=0.02)
    assert curve.error < 0.02


def test_what_is_no_form_is_followed_by_straight_lines():
    def twice_bent(n):
        return 10.0 + min(max(0, n - 14), 12)

    curve = fit(noisy(twice_bent, noise=0.001))
    assert curve.model == "steps"
    for width in WIDTHS:
        assert curve.at(width) == pytest.approx(twice_bent(width), rel=0.01)


def test_three_bent_widths_are_joined_and_three_on_a_line_are_a_line():
    bent = fit({8: 10.0, 24: 18.0, 48: 20.0})
    assert [bent.at(width) for width in (8, 24, 48)] == [10.0, 18.0, 20.0]
    flat = fit({8: 10.0, 24: 12.0, 48: 15.0})
    assert flat.at(33) == pytest.approx(13.125)
    assert flat.error == pytest.approx(0, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 100), min_size=8, max_size=8), st.booleans())
def test_no_curve_ever_falls(values, with_experts):
    points = dict(zip(WIDTHS, values, strict=True))
    for make in forms(WIDTHS, K26 if with_experts else None).values():
        curve = make(points)
        told = [curve.at(width) for width in range(8, 66)]
        assert all(later >= earlier - 1e-6 * earlier for earlier, later in pairwise(told))


def test_pooling_averages_what_falls():
    assert monotone({8: 4.0, 12: 6.0, 16: 5.0, 20: 7.0}) == {8: 4.0, 12: 5.5, 16: 5.5, 20: 7.0}


def test_lines_between_points_go_on_beyond_them():
    points = {8: 10.0, 16: 12.0, 32: 20.0}
    assert [interpolate(points, x) for x in (8, 12, 24, 40, 4)] == [10.0, 11.0, 16.0, 24.0, 9.0]
    assert interpolate({8: 3.0}, 99) == 3.0


def test_the_error_is_that_of_widths_left_out():
    makers = forms(WIDTHS, None)
    assert left_out(makers["line"], {width: 5.0 + width for width in WIDTHS}) == pytest.approx(0, abs=1e-9)
    assert left_out(makers["line"], {8: 1.0, 16: 3.0, 24: 2.0}) == pytest.approx(0.5)
    assert left_out(makers["line"], {8: 1.0, 16: 2.0}) is None


def test_the_published_curve_of_k26_is_told_from_half_of_its_points():
    """AR batch curve of eight RTX PRO 6000 cards; the other half within 10 %."""
    known = {width: ms for width, ms in VERIFY_MS if width >= 8}
    points = {width: interpolate(known, width) for width in (8, 12, 16, 20, 24, 33, 48, 64)}
    half = {width: points[width] for width in (8, 16, 33, 64)}
    curve = fit(half, K26)
    assert all(abs(curve.at(width) / ms - 1) < 0.10 for width, ms in points.items())


def test_requests_of_a_batch_choose_their_experts_independently():
    assert Experts(384, 8, requests=4).distinct(8) == pytest.approx(independent(32, 384, 8))
    counted = Experts(384, 8, {8: 40.0}, requests=2)
    assert counted.distinct(8) == pytest.approx(384 * (1 - (1 - 40 / 384) ** 2))


def test_too_few_widths_are_an_error_with_the_next_command():
    with pytest.raises(DdtoolError, match="two widths") as error:
        fit({33: 10.0})
    assert "--widths" in error.value.hint


def test_independent_routing_is_the_expectation_that_dice_have():
    dice = random.Random(0)
    for tokens in (1, 8, 33):
        drawn = [len({e for _ in range(tokens) for e in dice.sample(range(384), 8)}) for _ in range(200)]
        assert sum(drawn) / len(drawn) == pytest.approx(independent(tokens, 384, 8), rel=0.02)
    assert independent(1, 384, 8) == pytest.approx(8)


def test_a_smaller_trees_experts_are_those_of_the_first_rows():
    layer = [[0, 1], [1, 2], [0, 3], [4, -1]]
    nothing = [[-1, -1]] * 4
    assert distinct([[layer, nothing]], [1, 2, 4, 5]) == {1: 2, 2: 3, 4: 5}
    assert distinct([[nothing]], [1]) == {}


def test_measured_experts_take_the_place_of_the_bound():
    known = Experts(384, 8, {8: 40.0, 33: 100.0})
    assert known.distinct(33) == pytest.approx(100.0)
    assert known.distinct(1) == pytest.approx(8.0)
    assert 40 < known.distinct(20) < 100
