"""Patch definitions as files, consent, and the rows that `diag status` shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddtool.data import data_folder
from ddtool.diagnostics import consent, definition, view
from ddtool.errors import Drift, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """graph-copy with its neighbours: it may use what all diagnostics share."""
    return Path(shutil.copytree(data_folder("diag_patches"), tmp_path / "shipped")) / "graph-copy"


def rewritten(folder: Path, **changes: Any) -> Path:
    data = yaml.safe_load((folder / "patch.yaml").read_text())
    target = changes.pop("target", {})
    data["targets"][0].update(target)
    (folder / "patch.yaml").write_text(yaml.safe_dump({**data, **changes}))
    return folder


def test_shipped_patches_load() -> None:
    assert "graph-copy" in definition.names()
    patch = definition.load("graph-copy")
    assert patch.releases == ["0.5.11", "0.5.12.post1"]
    assert "def _ddtool_graph_copy" in patch.to_json()["targets"][0]["append"]


def test_the_identity_covers_the_code(folder: Path) -> None:
    before = definition.read(folder).sha
    assert before == definition.load("graph-copy").sha
    (folder / "check.py").write_text((folder / "check.py").read_text() + "\n# changed\n")
    assert definition.read(folder).sha != before


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        definition.load("graph_copy")
    assert "did you mean graph-copy" in (refused.value.hint or "")
    with pytest.raises(UsageError) as refused:
        definition.load("../graph-copy/x")
    assert "graph-copy" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"kind": "hack"}, "kind"),
        ({"hypothesis": None}, "hypothesis"),
        ({"hypothesis": {"fired": "x"}}, "hypothesis.not_fired"),
        ({"hypothesis": {"fired": "x", "not_fired": "y"}}, "hypothesis.not_reached"),
        ({"colour": "red"}, "colour"),
        ({"schema": "ddtool.patch/9"}, "schema"),
        ({"targets": []}, "targets"),
        ({"target": {"file": "/etc/passwd"}}, "targets.0.file"),
        ({"target": {"file": "sglang/../../x.py"}}, "targets.0.file"),
        ({"target": {"ast_sha256": {"1": "short"}}}, "targets.0.ast_sha256"),
        ({"target": {"edits": []}}, "targets.0.edits"),
        ({"name": "other-name"}, "name"),
        ({"target": {"append": "gone.py"}}, "gone.py"),
    ],
)
def test_a_bad_definition_names_file_and_key(folder: Path, changes: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as refused:
        definition.read(rewritten(folder, **changes))
    assert where in refused.value.message and str(folder) in refused.value.message


def patch(**more: Any) -> dict[str, Any]:
    row = {"name": "p", "sha": "1", "on_disk": True, "lost": False, "expired": False, "expires": None}
    row["kind"] = "diagnostic"
    return {**row, "why": "", "loaded": [], "reached": [], **more}


def rank(number: int, missing: list[str] | None = None, stale: list[str] | None = None) -> dict[str, Any]:
    return {"rank": number, "missing": missing or [], "stale": stale or []}


@pytest.mark.parametrize(
    ("loaded", "ranks", "text"),
    [
        ([], [], "the service does not run"),
        ([], [0, 1], "by none of 2 ranks: needs a restart"),
        ([0], [0], "by rank 0"),
        ([0, 1, 2, 3], [0, 1, 2, 3], "by ranks 0-3"),
        (
            [0, 1, 2, 5, 7],
            [0, 1, 2, 3, 4, 5, 6, 7],
            "by ranks 0-2, 5, 7, not by ranks 3-4, 6: needs a restart",
        ),
    ],
)
def test_loaded_says_which_ranks(loaded: list[int], ranks: list[int], text: str) -> None:
    assert view.loaded(patch(loaded=loaded), [rank(number) for number in ranks]) == text


def test_rows_say_lost_expired_and_changed() -> None:
    patches = [
        patch(lost=True, on_disk=False),
        patch(expired=True, expires="2026-01-01", why="to see"),
        patch(on_disk=False),
    ]
    rows = view.patch_rows({"patches": patches, "ranks": []})
    assert [row[1] for row in rows] == [
        "lost by upgrade",
        "yes, expired 2026-01-01",
        "no: the file was changed",
    ]
    assert rows[1][4] == "to see"


@pytest.mark.parametrize(
    ("loaded", "reached", "text"),
    [([], [], "-"), ([0, 1], [], "not yet"), ([0, 1], [1], "by rank 1"), ([0, 1], [0, 1], "by ranks 0-1")],
)
def test_reached_says_in_which_ranks_the_code_ran(loaded: list[int], reached: list[int], text: str) -> None:
    assert view.reached(patch(loaded=loaded, reached=reached)) == text


def test_a_patch_of_another_ddtool_is_told_from_this_ones() -> None:
    state = {"patches": [patch(), patch(name="q", sha="old"), patch(name="gone")]}
    assert view.outdated(state, {"p": "1", "q": "new"}) == ["q"]
    shipped = definition.load("graph-copy")
    assert definition.shas(["graph-copy", "gone"]) == {"graph-copy": shipped.sha}


def test_a_log_says_which_diagnostics_are_on() -> None:
    patches = [patch(expires="2026-12-13", loaded=[0]), patch(name="fix", kind="fix")]
    state = {"patches": patches, "ranks": [rank(0, stale=["old"])]}
    assert (
        view.banner(state)
        == "diagnostics: p (by rank 0, until 2026-12-13); old (off, but rank 0 still run it)"
    )
    assert view.banner({"patches": patches[1:], "ranks": []}) is None


def test_code_that_is_off_but_still_runs_is_shown() -> None:
    ranks = [rank(0, stale=["p"]), rank(1), rank(2, stale=["p"])]
    state = {"patches": [], "ranks": ranks, "restart_needed": True, "files": []}
    assert view.leftover_rows(state) == [("p", "ranks 0, 2")]
    assert view.headline(state) == "no diagnostic is on disk; a restart is needed"
    assert view.headline({**state, "ranks": [], "restart_needed": False}) == "no diagnostic is enabled"
    assert view.headline({**state, "patches": [patch()], "restart_needed": False}) == "enabled: p"


def test_other_units_on_the_same_files_have_to_be_named() -> None:
    preview = {
        "site": "/v/site",
        "units": {"mine": [1], "other.service": [2], "pid 7": [7]},
        "diffs": {"a": "x"},
    }
    with pytest.raises(UsageError, match=": other") as refused:
        consent.check_affected(preview, "mine.service", [])
    assert refused.value.hint == "add --also-affects other"
    consent.check_affected(preview, "mine", ["other"])
    consent.check_affected({**preview, "diffs": {}}, "mine", [])


def test_disabling_what_nobody_knows_is_a_typing_error() -> None:
    consent.check_disable(["old-patch", "graph-copy"], ["old-patch"])
    with pytest.raises(UsageError) as refused:
        consent.check_disable(["graph-cop"], ["old-patch"])
    assert refused.value.hint == "did you mean graph-copy?"


def test_files_are_proven_after_a_change() -> None:
    consent.check_as_recorded(
        {"files": [{"file": "a.py", "state": "ours"}, {"file": "b.py", "state": "baseline"}]}
    )
    with pytest.raises(Drift, match=r"a\.py is foreign"):
        consent.check_as_recorded({"files": [{"file": "a.py", "state": "foreign"}]})
