"""nan-guard behind the model runner of each release: a fault in the logits is named by row, node and request."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.patch_probe import Answer

from ddtool.diagnostics import definition

from .conftest import MAIN

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
PATCH = definition.load("nan-guard")


@pytest.fixture(
    params=[pytest.param(one, marks=[] if one in MAIN else [pytest.mark.slow]) for one in PATCH.releases]
)
def answer(request: pytest.FixtureRequest, answers: Callable[[str], dict[str, Answer]]) -> Answer:
    return answers(request.param)["nan-guard"]


def test_the_first_nan_is_named_by_row_node_and_request(answer: Answer) -> None:
    (marker,) = answer.patched["nan"].markers
    assert {key: value for key, value in marker.items() if key != "pid"} == {
        "patch": "nan-guard",
        "sha": PATCH.sha,
        "event": "nonfinite",
        "worker": "target",
        "rank": 3,
        "row": 40,
        "node": 7,
        "request": 1,
        "rid": "request-1",
        "kind": "nan",
        "rows": 66,
        "width": 33,
        "bad_rows": 2,
        "pass": 2,
    }


def test_each_worker_reports_once(answer: Answer) -> None:
    assert [one["worker"] for one in answer.patched["both_workers"].markers] == ["target", "draft"]


def test_infinities_are_told_apart(answer: Answer) -> None:
    found = [answer.patched[case].markers[0] for case in ("inf", "minus_inf")]
    assert [(one["kind"], one["row"], one["node"], one["request"]) for one in found] == [
        ("inf", 0, 0, 0),
        ("-inf", 65, 32, 1),
    ]


def test_on_a_device_the_report_waits_for_its_copy_and_nobody_waits_for_it(answer: Answer) -> None:
    assert answer.patched["under_way"].markers == []
    (marker,) = answer.patched["arrived"].markers
    assert (marker["kind"], marker["row"], marker["node"], marker["pass"]) == ("nan", 34, 1, 1)


def test_a_guard_that_cannot_look_says_so_and_the_pass_goes_on(answer: Answer) -> None:
    assert answer.patched["blind"].error is None
    assert "NotImplementedError" in answer.patched["blind"].markers[0]["why"]
