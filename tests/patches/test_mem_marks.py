"""mem-marks in the model runner of each release: every phase of both workers leaves one mark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.patch_probe import Answer

from ddtool.diagnostics import definition

from .conftest import MAIN

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
PATCH = definition.load("mem-marks")


@pytest.fixture(
    params=[pytest.param(one, marks=[] if one in MAIN else [pytest.mark.slow]) for one in PATCH.releases]
)
def answer(request: pytest.FixtureRequest, answers: Callable[[str], dict[str, Answer]]) -> Answer:
    return answers(request.param)["mem-marks"]


def test_every_phase_of_both_workers_is_marked_once(answer: Answer) -> None:
    found = [(one["worker"], one["phase"]) for one in answer.patched["start"].markers]
    assert found == [
        (worker, phase) for worker in ("target", "draft") for phase in ("load", "pool", "capture")
    ]
    found = [(one["worker"], one["phase"]) for one in answer.patched["passes"].markers]
    assert found == [("target", "first-decode"), ("draft", "first-decode")]


def test_without_cuda_free_is_what_sglang_says_and_the_rest_is_null(answer: Answer) -> None:
    first = answer.patched["start"].markers[0]
    assert (first["rank"], first["device"]) == (3, "cpu:0")
    assert first["free"] > 2**20
    assert [first[key] for key in ("allocated", "reserved", "peak", "total")] == [None] * 4
