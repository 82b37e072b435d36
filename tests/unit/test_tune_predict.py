"""From passes and a trace to an arm, on machines whose truth is known; the chain where the chain is right."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest
from support.tuning import BLOCK, TOPK, Machine, texts

from ddtool.bench.tune import recommend
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.cost import Experts, interpolate
from ddtool.bench.tune.experts import independent
from ddtool.bench.tune.found import Found, fastest, tried
from ddtool.bench.tune.predict import Load, Predictor, play
from ddtool.bench.tune.rounds import arm_of, shape_of, timings, width_of
from ddtool.bench.tune.trees import CHAIN, Shape
from ddtool.profile.prediction import DRAFT_MS, VERIFY_MS

BUDGETS = (7, 11, 15, 19, 23, 32, 47, 64)
FITTED, JUDGED = (7, 15, 32, 64), (11, 19, 23, 47)  # a curve is asked for what lies between its ends
ARMS = ["chain", *(f"tree:{budget}" for budget in BUDGETS)]
ALONE, SIXTEEN = Load("code", 1), Load("code", 16)
TEXTS = texts(11, 16, 64, 0.62)
LIKE_K26 = texts(12, 16, 64, 0.74, 0.05)  # the chain takes 3.5, and budget 7 is hardly more than the chain
TREES = recommend.candidates(BLOCK, 64, [TOPK])


def k26(width: int, active: int) -> float:
    """The published batch curve of Kimi K2.6: a verify of N tokens costs about what a batch of N does."""
    return interpolate(dict(VERIFY_MS), width * active) + DRAFT_MS


def free_until_33(width: int, active: int) -> float:
    """A dense target that is memory-bound up to 33 tokens a request, then bound by arithmetic."""
    return 14 + 0.05 * active + 0.5 * max(0, width - 33)


def dense(width: int, active: int) -> float:
    """Memory-bound up to 300 tokens in all, then bound by arithmetic."""
    return 9 + 0.1 * active + 0.02 * max(0, width * active - 300)


def mixture(width: int, active: int) -> float:
    return 4 + 0.02 * width * active + 0.08 * independent(width * active, 384, 8)


def predictor(machine: Machine, arms=ARMS, concurrencies=(1, 16), experts=None) -> Predictor:
    return Predictor(timings(machine.passes(arms, concurrencies), TOPK), machine.acceptance, experts)


def truly(machine: Machine, arm: str, concurrency: int) -> float:
    return median(one.tok_s for one in timings(machine.passes([arm], [concurrency], repeats=2), TOPK))


@pytest.mark.parametrize(
    ("arm", "shape", "width"),
    [("chain", CHAIN, 8), ("tree:32", Shape(32, 8), 33), ("tree:16:4", Shape(16, 4), 17)],
)
def test_arms_and_shapes(arm, shape, width):
    assert shape_of(arm, TOPK) == shape
    assert arm_of(shape, TOPK) == arm
    assert width_of(shape, BLOCK) == width
    assert shape_of("plain", TOPK) is None


def test_a_load_is_played_with_so_many_at_a_time_and_the_next_when_one_is_done():
    assert play([3, 2, 4], 1, lambda active: 1.0) == 9
    assert play([3, 2, 4], 3, lambda active: 1.0) == 4
    # two at a time: 3 and 2; the third begins after 2 and runs alone after 3
    assert play([3, 2, 4], 2, lambda active: float(active)) == 2 * 3 + 1 * 3


def test_timings_are_what_the_machine_took():
    machine = Machine(TEXTS, k26, noise=0.02)
    (one,) = timings(machine.passes(["tree:32"], [1]), TOPK)
    assert one.round_ms == pytest.approx(k26(33, 1), rel=0.01)
    assert one.accept == pytest.approx(machine.acceptance.length(Shape(32, 8)))
    assert (one.workload, one.concurrency, one.context, one.shape) == ("code", 1, 100, Shape(32, 8))


@pytest.mark.parametrize(
    ("cell", "workload", "concurrency"),
    [
        ("code-c16", "code", 16),
        ("code-c1-t0.7", "code-t0.7", 1),
        ("synthetic-512-64-c4", "synthetic-512-64", 4),
    ],
)
def test_a_cells_name_is_a_workload_and_a_load(cell, workload, concurrency):
    (one,) = Machine(TEXTS[:2], k26).passes(["chain"], [1])
    (found,) = timings([replace(one, id=replace(one.id, cell=cell))], TOPK)
    assert (found.workload, found.concurrency) == (workload, concurrency)
    assert timings([replace(one, id=replace(one.id, cell="code-r2.5"))], TOPK) == []


def test_a_pass_with_a_failed_request_is_no_timing():
    (one,) = Machine(TEXTS[:2], k26).passes(["chain"], [1])
    broken = {**one.samples[0], "error": "gone"}
    assert timings([one], TOPK)
    assert timings([type(one)(one.id, one.begin, (broken, *one.samples[1:]), one.end)], TOPK) == []


@pytest.mark.parametrize("round_ms", [k26, dense, mixture])
def test_half_of_the_budgets_tell_the_other_half_within_10_percent(round_ms):
    machine = Machine(TEXTS, round_ms, noise=0.03)
    experts = Experts(384, 8) if round_ms is mixture else None
    said = predictor(machine, ["chain", *(f"tree:{budget}" for budget in FITTED)], experts=experts)
    for load in (ALONE, SIXTEEN):
        for budget in JUDGED:
            true = truly(machine, f"tree:{budget}", load.concurrency)
            assert said.rate(Shape(budget, TOPK), load) == pytest.approx(true, rel=0.10), (budget, load)


def test_on_the_machine_of_the_first_user_the_chain_is_right_and_is_said():
    machine = Machine(LIKE_K26, k26, tree_ms=0.5)
    assert machine.acceptance.length(CHAIN) == pytest.approx(3.5, abs=0.15)
    said = recommend.predicted(predictor(machine, concurrencies=(1,)), ALONE, TREES)
    assert said.is_chain
    assert said.why.startswith("use the chain: ")
    best = max(truly(machine, arm, 1) for arm in ARMS)
    assert truly(machine, "chain", 1) > 0.97 * best
    assert truly(machine, "tree:32", 1) < 0.95 * best


def test_where_verify_is_free_up_to_33_the_tree_of_32_is_right():
    machine = Machine(TEXTS, free_until_33)
    said = recommend.predicted(predictor(machine), ALONE, TREES)
    assert said.shape.budget == pytest.approx(32, abs=4)
    assert said.why.startswith("use the tree: budget")
    found = arm_of(said.shape, TOPK)
    assert truly(machine, found, 1) > 0.97 * max(truly(machine, arm, 1) for arm in ARMS)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_recommended_is_never_3_percent_below_the_best_that_was_tried(seed):
    dice = random.Random(seed)
    base, slope, knee = dice.uniform(4, 20), dice.uniform(0, 0.6), dice.choice([8, 16, 32, 64])
    machine = Machine(
        texts(seed, 12, 64, dice.uniform(0.4, 0.85)), lambda n, a: base + slope * max(0, n - knee)
    )
    first = recommend.predicted(predictor(machine, concurrencies=(1,)), ALONE, TREES)
    tried = [CHAIN, first.best, *recommend.neighbours(first.best, BLOCK, 64)]
    passes = machine.passes([arm_of(shape, TOPK) for shape in tried], [1], repeats=5)
    rates: dict[Shape, dict[tuple[int, int], float]] = {}
    for one in timings(passes, TOPK):
        rates.setdefault(one.shape, {})[one.visit, one.repeat] = one.tok_s
    assert {len(found) for found in rates.values()} == {5}
    said = recommend.measured(rates)
    assert median(rates[said.shape].values()) >= 0.97 * max(
        median(found.values()) for found in rates.values()
    )


def test_a_gain_that_is_uncertain_is_the_chains_unless_it_is_worth_more_than_3_percent():
    tree = Shape(32, 8)
    small = recommend.choose(tree, 0.02, 0.05, "measured", "±5.0%")
    assert small.is_chain
    assert "not more than is uncertain" in small.why
    assert not recommend.choose(tree, 0.02, 0.01, "measured", "±1.0%").is_chain
    large = recommend.choose(tree, 0.04, 0.05, "measured", "±5.0%")
    assert not large.is_chain
    assert "not certain" in large.why
    assert recommend.choose(tree, -0.01, 0.0, "predicted", "±0.0%").is_chain


def test_what_was_fastest_in_the_fit_is_run_again_where_no_smooth_curve_tells_why():
    machine = Machine(TEXTS, lambda n, a: (10 + 0.08 * n) * (0.72 if n == 16 else 1), noise=0.001)
    fit = timings(machine.passes(ARMS, [16]), TOPK)
    found = Found(Predictor(fit, machine.acceptance), fit, [], "code", TOPK)
    best = recommend.predicted(found.predictor, SIXTEEN, found.shapes).best
    assert fastest(found, SIXTEEN) == Shape(15, TOPK)
    assert Shape(15, TOPK) not in [best, *recommend.neighbours(best, BLOCK, 64)]
    assert tried(found, SIXTEEN) == [CHAIN, best, *recommend.neighbours(best, BLOCK, 64), Shape(15, TOPK)]


def test_neighbours_are_a_smaller_and_a_larger_tree_where_there_are_such():
    assert [one.budget for one in recommend.neighbours(Shape(32, 8), BLOCK, 64)] == [23, 45]
    assert [one.budget for one in recommend.neighbours(Shape(7, 8), BLOCK, 64)] == [10, 14]
    assert [one.budget for one in recommend.neighbours(Shape(64, 4), BLOCK, 64)] == [33, 46]
    assert recommend.neighbours(Shape(64, 4), BLOCK, 64)[0].topk == 4


def test_one_measurement_says_nothing_about_the_next():
    one = recommend.measured({CHAIN: {(0, 0): 100.0}, Shape(32, 8): {(0, 0): 102.0}})
    assert one.is_chain
    assert "from 1 pass of each, and it takes 5 to say how surely" in one.why


def test_five_passes_say_how_surely_and_those_of_one_start_that_they_know_no_other():
    def compared(repeats: list[tuple[int, int]]) -> recommend.Choice:
        chain = dict(zip(repeats, [100.0, 101, 99, 100, 102], strict=False))
        return recommend.measured(
            {CHAIN: chain, Shape(32, 8): {at: 1.02 * rate for at, rate in chain.items()}}
        )

    sure = compared([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
    assert not sure.is_chain
    assert sure.error < 0.01
    assert "start" not in sure.why
    assert "±0.0% within one server start" in compared([(0, repeat) for repeat in range(5)]).why
    four = compared([(0, 0), (0, 1), (1, 0), (1, 1)])
    assert "from 4 passes of each, and it takes 5 to say how surely" in four.why
    assert "start" not in four.why


def test_passes_of_one_repeat_are_compared_though_one_is_missing():
    """A machine that is half as fast in every second repeat: by position a missing pass would pair slow with fast."""
    chain = {(0, repeat): 100.0 if repeat % 2 else 50.0 for repeat in range(8)}
    tree = {one: 1.05 * rate for one, rate in chain.items() if one != (0, 0)}
    said = recommend.measured({CHAIN: chain, Shape(32, 8): tree})
    assert said.gain == pytest.approx(0.05) and said.error < 0.001 and not said.is_chain


def test_a_thin_trace_leaves_the_chain_to_its_own_measurement():
    machine = Machine(TEXTS, free_until_33)
    full = machine.acceptance
    thin = [
        type(text)(text.ids, {root: said for root, said in text.drafts.items() if root % 3 == 0})
        for text in full.texts
    ]
    passes = timings(machine.passes(ARMS, [1]), TOPK)
    said = Predictor(passes, Acceptance(thin, 64))
    (chain,) = (one.tok_s for one in passes if one.arm == "chain")
    assert said.rate(CHAIN, ALONE) == chain
