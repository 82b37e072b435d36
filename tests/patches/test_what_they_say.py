"""What the markers of the graph patches say, and what the fixes change, in the real SGLang of the main releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.patch_probe import Answer

from ddtool.diagnostics import definition

from .conftest import MAIN

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
Answers = Callable[[str], dict[str, Answer]]


def on(name: str) -> Any:
    """The main releases that the patch claims."""
    return pytest.mark.parametrize("release", [one for one in MAIN if one in definition.load(name).releases])


def marker(answer: Answer, case: str, **wanted: object) -> dict[str, Any]:
    """The only marker of a case, or the only one with these fields."""
    (found,) = [
        one
        for one in answer.patched[case].markers
        if all(one.get(key) == value for key, value in wanted.items())
    ]
    return found


@on("graph-shapes")
def test_shapes_says_both_widths_per_buffer(release: str, answers: Answers) -> None:
    answer = answers(release)["graph-shapes"]
    wide = marker(answer, "wide", buffer="input_ids")
    assert (wide["captured"], wide["incoming"]) == (8, 33)
    assert (wide["expected_length"], wide["incoming_length"], wide["draft_token_num"]) == (8, 33, 33)
    assert (wide["worker"], wide["rank"], wide["mode"]) == ("draft", 3, "TARGET_VERIFY")
    assert {one["worker"] for one in answer.patched["target"].markers} == {"target"}
    assert answer.patched["wide"].error == answer.wheel["wide"].error, "it reports; the error is torch's own"


@on("graph-shapes")
def test_shapes_sees_what_torch_broadcasts_in_silence(release: str, answers: Answers) -> None:
    answer = answers(release)["graph-shapes"]
    assert answer.wheel["broadcast"].error is None
    said = marker(answer, "broadcast")
    assert (said["buffer"], said["captured"], said["incoming"]) == ("positions", 8, 1)
    length = marker(answer, "requests")
    assert (length["buffer"], length["expected_length"], length["incoming_length"]) == ("seq_lens", 2, 3)


@on("graph-slots")
def test_slots_names_the_field_and_who_filled_it(release: str, answers: Answers) -> None:
    answer = answers(release)["graph-slots"]
    assert answer.wheel["lost"].error is None, "the wheel goes on in silence"
    lost = marker(answer, "lost")
    assert (lost["slot"], lost["filled_by"], lost["holds"]) == ("positions", "draft", [40, 41, 42, 43])
    assert (lost["worker"], lost["rank"], lost["requests"], lost["padded"]) == ("draft", 3, 1, 2)
    never = marker(answer, "never")
    assert (never["slot"], never["filled_by"], never["holds"]) == ("num_token_non_padded", None, [0])
    shared = marker(answer, "shared")
    assert (shared["slot"], shared["filled_by"], shared["holds"]) == (
        "num_token_non_padded",
        "target",
        [8 * 33],
    )
    assert marker(answer, "optional")["slot"] == "mrope_positions"


@on("capture-sizes")
def test_sizes_says_kept_dropped_and_why(release: str, answers: Answers) -> None:
    answer = answers(release)["capture-sizes"]
    for case, outcome in answer.patched.items():
        assert outcome.markers[0]["kept"] == answer.wheel[case].result[0], case
    plain = marker(answer, "plain")
    assert (plain["multiple"], plain["parts"], plain["off_multiple"], plain["width"]) == (1, {}, [], 33)
    gathered = marker(answer, "gathered")
    assert (gathered["multiple"], gathered["off_multiple"]) == (8, [1, 2, 4, 12])
    assert gathered["parts"] == {"gathered_buffer: attention tp": 8}
    assert marker(answer, "gathered_block")["off_multiple"] == [], "8 tokens a request are a multiple of 8"
    assert marker(answer, "context_parallel")["parts"] == {"attention cp": 2}
    assert marker(answer, "two_batches")["parts"] == {"two_batch_overlap": 2}
    small = marker(answer, "small_pool")
    assert (small["kept"][-1], small["above_max"], small["max_requests"]) == (9, [12, 16], 9)


@on("fix-graph-width")
def test_the_width_rule_has_three_cases(release: str, answers: Answers) -> None:
    answer = answers(release)["fix-graph-width"]
    widths = {
        case: (answer.wheel[case].result["width"], outcome.result["width"])
        for case, outcome in answer.patched.items()
    }
    assert widths == {
        "dflash_draft": (8, 8),
        "dflash_target": (8, 8),
        "eagle_target": (4, 4),
        "tree_draft": (33, 8),
        "tree_target": (8, 33),
        "tree_without_flag": (33, 33),
    }
    for outcome in answer.patched.values():
        assert all(width == outcome.result["width"] for pair in outcome.result["captured"] for width in pair)
    assert {key: marker(answer, "tree_draft")[key] for key in ("worker", "rank", "was", "now")} == {
        "worker": "draft",
        "rank": 3,
        "was": 33,
        "now": 8,
    }


@on("fix-num-token-non-padded")
def test_the_missing_field_is_there_with_spread_experts_only(release: str, answers: Answers) -> None:
    answer = answers(release)["fix-num-token-non-padded"]
    assert all(outcome.result is None for outcome in answer.wheel.values())
    assert answer.patched["healthy"].result is None
    assert answer.patched["spread"].result == [16, "torch.int32", 16]


@on("fix-replay-guard")
def test_a_batch_that_does_not_fit_runs_eagerly(release: str, answers: Answers) -> None:
    answer = answers(release)["fix-replay-guard"]
    assert (answer.wheel["wide"].result, answer.patched["wide"].result) == (True, False)
    said = marker(answer, "wide")
    assert (said["captured"], said["requests"], said["tokens"], said["rank"]) == (8, 1, 33, 3)
    unchanged = [case for case in answer.patched if case != "wide"]
    assert all(answer.patched[case].result == answer.wheel[case].result for case in unchanged)
