"""graph-copy in the real module on CPU: both crashes reproduce, and are then named by field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import venvs
from support.patch_probe import Answer

from ddtool.agent import toggle
from ddtool.agent.errors import UsageError as AgentUsageError
from ddtool.agent.registry import Context
from ddtool.diagnostics import definition

from . import forks

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


@pytest.mark.parametrize(
    ("fork", "places"),
    [
        ("renamed-batch", {"input_ids": 0, "positions": 4, "extra": None}),
        ("reordered-fields", {"input_ids": 4, "positions": 0, "extra": None}),
        ("extra-field", {"input_ids": 0, "positions": 5, "extra": 1}),
    ],
)
def test_on_a_fork_the_right_field_is_named(
    fork: str, places: dict[str, int | None], answers: Callable[[str], dict[str, Answer]]
) -> None:
    """`places`: where the field stands in that fork's lists, None where it does not exist."""
    cases = answers(forks.RELEASE)[f"fork-{fork}"].patched
    assert cases["healthy"].error is None and cases["healthy"].markers == []
    for case, index in places.items():
        field = "ddtree_depths" if case == "extra" else case
        found = [(marker["event"], marker["field"], marker["index"]) for marker in cases[case].markers]
        assert found == ([] if index is None else [("none", field, index)])
        assert (cases[case].error is None) == (index is None)
    (wide,) = cases["wide"].markers
    assert (wide["event"], wide["field"], wide["index"]) == ("shape", "positions", places["positions"])


def test_a_fork_that_renamed_the_arguments_is_refused(
    ctx: Context, edited: Callable[[str], Path], tmp_path: Path
) -> None:
    """Composed, it would compile and die at its first replay: it is refused with the names, also with consent."""
    venv = venvs.make(
        tmp_path / "venv", {forks.FILE: forks.renamed_argument(forks.source(edited(forks.RELEASE))).encode()}
    )
    with pytest.raises(
        AgentUsageError, match=r"_grouped_foreach_copy_ .* uses dsts, srcs, which is not there"
    ):
        toggle.plan_diag(
            ctx, venv=str(venv), enable=[PATCH.to_json()], disable=[], who="me", confirm_unknown=True
        )


def test_a_release_without_the_function_names_the_diagnostic_to_use(
    ctx: Context, edited: Callable[[str], Path]
) -> None:
    for release in ("0.5.13.post1", "0.5.17"):
        with pytest.raises(AgentUsageError, match="nothing to edit in sglang") as refused:
            toggle.plan_diag(ctx, venv=str(edited(release)), enable=[PATCH.to_json()], disable=[], who="me")
        assert refused.value.hint == "`ddtool diag enable graph-slots`"
