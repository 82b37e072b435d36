"""What of tune.py needs no GPU: the halves, the best of what was tried, the words."""

from __future__ import annotations

import pytest
import tune
from support.tuning import BLOCK, TOPK, Machine, texts

from ddtool.bench.tune import plan
from ddtool.bench.tune.answer import answer
from ddtool.bench.tune.found import Found, choice
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import timings

ARMS = plan.arms(plan.widths(None, BLOCK))


@pytest.fixture(scope="module")
def found() -> Found:
    def dense(width: int, active: int) -> float:
        return 9 + 0.1 * active + 0.02 * max(0, width * active - 300)

    machine = Machine(texts(31, 16, 48, 0.62), dense, tree_ms=0.3)
    fitted = timings(machine.passes(ARMS, [1, 16], 2), TOPK)
    verified = timings(
        machine.passes(["chain", "tree:23", "tree:32", "tree:45", "tree:64"], [1, 16], 6), TOPK
    )
    return Found(Predictor(fitted, machine.acceptance), fitted, verified, "code", TOPK)


def test_half_of_the_widths_both_ends_among_them_tell_the_others(found: Found) -> None:
    rows = tune.half(found)
    judged = {row["arm"] for row in rows if not row["fitted"]}
    assert judged == {"tree:11", "tree:19", "tree:32", "tree:47"}
    assert len(rows) == 2 * len(ARMS)
    for row in rows:
        assert row["predicted"] == pytest.approx(row["measured"], rel=0.10)


def test_what_is_recommended_is_held_against_the_best_that_was_tried(found: Found) -> None:
    for row in tune.best_tried(found):
        assert row["below"] <= 0.03
    told = answer(found, {}, choice(found, found.main[0]), found.main[0], "")
    lines = list(tune.report(told, tune.half(found), tune.best_tried(found)))
    assert sum("JUDGED" in line for line in lines) == 8
    assert any("the best tried" in line for line in lines)


def test_experts_are_taken_as_count_and_choice() -> None:
    words = ["--name", "x", "--target", "/t", "--draft", "/d", "--commit", "abc", "--experts", "384:8"]
    assert tune.parser().parse_args(words).experts == "384:8"
    assert tune.parser().parse_args(words).minutes < 10
