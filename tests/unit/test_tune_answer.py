"""Where a round's time goes in the answer, by what the server times."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from support.tuning import TOPK, Machine, texts

from ddtool.bench.passes import Cell
from ddtool.bench.tune.answer import split_rows, verify_rows
from ddtool.bench.tune.found import Found, speeds
from ddtool.bench.tune.predict import Load, Predictor
from ddtool.bench.tune.rounds import timings

ALONE = Load("code", 1)
ROUND, TREE = 10.0, {"grow": 0.3, "choose": 0.1, "follow": 0.2}
ALL = {"choose": 0.1, "draft": 1.5, "follow": 0.2, "grow": 0.3, "verify": 7.0}  # as /metrics sorts them


def found(steps: dict[str, float]) -> Found:
    machine = Machine(texts(31, 8, 48, 0.62), lambda width, active: ROUND, noise=0)
    measured = [
        one if one.shape is None or one.shape.is_chain else replace(one, steps=steps)
        for one in timings(machine.passes(["chain", "tree:7", "tree:15", "tree:32"], [1]), TOPK)
    ]
    return Found(Predictor(measured, machine.acceptance), measured, [], "code", TOPK)


def row_of(steps: dict[str, float]) -> dict[str, float]:
    return {row["width"]: row for row in verify_rows(found(steps), ALONE)}[16]


def test_a_server_that_times_every_step_tells_draft_and_verify() -> None:
    row = row_of(ALL)
    assert (row["draft_ms"], row["verify_ms"], row["tree_ms"]) == (1.5, 7.0, 0.6)
    assert row["fitted_ms"] == pytest.approx(7.0), "the line beside the points is of the same piece"
    assert row["round_ms"] == pytest.approx(ROUND)


def test_a_server_that_times_the_trees_steps_alone_leaves_the_rest_in_one_piece() -> None:
    row = row_of(TREE)
    assert (row["draft_ms"], row["tree_ms"]) == (None, 0.6)
    assert row["verify_ms"] == row["fitted_ms"] == pytest.approx(ROUND - 0.6)


def test_a_server_without_metrics_tells_the_round() -> None:
    row = row_of({})
    assert (row["draft_ms"], row["tree_ms"], row["verify_ms"]) == (None, None, pytest.approx(ROUND))


@pytest.mark.parametrize(
    ("steps", "pieces"),
    [
        (ALL, {"draft": 1.5, "grow": 0.3, "verify": 7.0, "choose": 0.1, "follow": 0.2, "host": 0.9}),
        (TREE, {"draft, verify and host": 9.4, "grow": 0.3, "choose": 0.1, "follow": 0.2}),
        ({}, {"draft, verify and host": 10.0}),
    ],
)
def test_the_pieces_of_a_round_add_up(steps: dict[str, float], pieces: dict[str, float]) -> None:
    rows = split_rows(found(steps), ALONE)
    of_tree = {row["step"]: row["ms"] for row in rows if row["arm"] == "tree:15"}
    assert list(of_tree) == list(pieces), "in a round's order"
    assert of_tree == pytest.approx(pieces, abs=0.001)
    assert [row["step"] for row in rows if row["arm"] == "chain"] == ["draft, verify and host"]


def test_speeds_are_of_one_request_and_of_the_cells_asked_for() -> None:
    machine = Machine(texts(31, 8, 48, 0.62), lambda width, active: ROUND, noise=0)
    measured = timings(machine.passes(["chain", "tree:15", "tree:32"], [1, 4]), TOPK)
    fit = Found(Predictor(measured, machine.acceptance), measured, [], "code", TOPK)
    loads = [Cell("code", concurrency, None, 0.0, 8, 48) for concurrency in (1, 4, 9)]
    found_speeds = speeds(fit, loads)
    assert list(found_speeds) == ["code-c1", "code-c4"], "nothing is known of the third"
    alone = [one.tok_s for one in measured if one.concurrency == 1]
    assert found_speeds["code-c1"] == pytest.approx(median(alone))
    assert found_speeds["code-c4"] < found_speeds["code-c1"]


def test_steps_that_are_longer_than_the_round_leave_the_host_nothing() -> None:
    rows = split_rows(found({**ALL, "verify": 9.0}), ALONE)
    assert [row["ms"] for row in rows if (row["arm"], row["step"]) == ("tree:15", "host")] == [0.0]
