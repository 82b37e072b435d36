"""graph-copy in the real module on CPU: both crashes reproduce, and are then named by field."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.patch_probe import Answer

from ddtool.diagnostics import definition

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
PATCH = definition.load("graph-copy")


@pytest.fixture(params=["0.5.12.post1", pytest.param("0.5.11", marks=pytest.mark.slow)])
def answer(request: pytest.FixtureRequest, answers: Callable[[str], dict[str, Answer]]) -> Answer:
    return answers(request.param)["graph-copy"]


def test_healthy_input_is_copied(answer: Answer) -> None:
    healthy = answer.patched["healthy"]
    assert healthy.error is None and healthy.result["positions"][:8] == list(range(40, 48))


def test_none_is_named(answer: Answer) -> None:
    assert answer.wheel["positions"].error == ["AttributeError", "'NoneType' object has no attribute 'dtype'"]
    assert answer.patched["positions"].error is not None
    kind, text = answer.patched["positions"].error
    assert kind == "RuntimeError"
    assert all(part in text for part in ("positions", "None", "draft worker", "rank 3", "index 4 of 7"))
    (marker,) = answer.patched["positions"].markers
    assert {key: value for key, value in marker.items() if key != "pid"} == {
        "patch": "graph-copy",
        "sha": PATCH.sha,
        "event": "none",
        "worker": "draft",
        "rank": 3,
        "index": 4,
        "field": "positions",
        "side": "src",
        "group_size": 7,
        "width": 8,
    }


def test_a_field_behind_optional_ones_is_named_by_its_buffer(answer: Answer) -> None:
    """Its index depends on the configuration (here mrope precedes it), so no table could name it."""
    (marker,) = answer.patched["padded_count"].markers
    assert (marker["field"], marker["index"]) == ("num_token_non_padded", 6)


def test_every_none_is_reported(answer: Answer) -> None:
    found = [(marker["field"], marker["index"]) for marker in answer.patched["two"].markers]
    assert found == [("input_ids", 0), ("out_cache_loc", 3)]


def test_eight_against_thirty_three_is_named(answer: Answer) -> None:
    stock = "The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0"
    assert answer.wheel["width"].error == ["RuntimeError", stock]
    found = answer.patched["width"].markers
    assert [marker["field"] for marker in found] == ["input_ids", "out_cache_loc", "positions"]
    assert {(marker["event"], marker["worker"], marker["width"]) for marker in found} == {
        ("shape", "draft", 8)
    }
    assert all((marker["dst_shape"], marker["src_shape"]) == ([8], [33]) for marker in found)
    assert answer.patched["width"].error is not None
    assert "positions (index 4): [33] into [8]" in answer.patched["width"].error[1]


def test_the_target_worker_is_told_from_the_draft(answer: Answer) -> None:
    (marker,) = answer.patched["target"].markers
    assert marker["worker"] == "target" and answer.patched["target"].error is not None
    assert "target worker" in answer.patched["target"].error[1]
