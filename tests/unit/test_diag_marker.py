"""What all diagnostics share (diag_patches/marker.py): milestones in the log and in the proof, and no harm done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddtool.data import data_folder

Json = dict[str, Any]


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Import a patched file of this name in a service; the proofs lie under the test's run folder."""
    monkeypatch.setenv("DDTOOL_UNIT", "unit")
    monkeypatch.setenv("DDTOOL_RUN", str(tmp_path / "run"))
    names: Json = {}
    exec((data_folder("diag_patches") / "marker.py").read_text(), names)
    return lambda file: names["_ddtool_marker"]("p", "s", file)


def said(capsys: pytest.CaptureFixture[str]) -> list[Json]:
    lines = capsys.readouterr().err.splitlines()
    return [json.loads(line.removeprefix("ddtool-diag/1 ")) for line in lines]


def proof(tmp_path: Path) -> dict[str, bool]:
    """File → reached."""
    (path,) = (tmp_path / "run/unit").iterdir()
    return {item["file"]: item["reached"] for item in json.loads(path.read_text())["patches"]}


def test_reached_is_said_once_for_each_file(
    patched: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = patched("a.py"), patched("b.py")
    assert [item["event"] for item in said(capsys)] == ["loaded", "loaded"]
    assert proof(tmp_path) == {"a.py": False, "b.py": False}
    for _ in range(3):
        one.reached()
    (marker,) = said(capsys)
    assert (marker["event"], marker["file"], marker["patch"], marker["sha"]) == ("reached", "a.py", "p", "s")
    assert proof(tmp_path) == {"a.py": True, "b.py": False}


def test_a_proof_that_cannot_be_written_is_said_and_stops_nothing(
    patched: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("no folder")
    patched("a.py").reached()
    assert [item["event"] for item in said(capsys)] == ["unproven", "loaded", "unproven", "reached"]


def test_outside_of_a_unit_there_is_no_proof(
    patched: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DDTOOL_UNIT")
    patched("a.py").reached()
    assert [item["event"] for item in said(capsys)] == ["loaded", "reached"]
    assert not (tmp_path / "run").exists()
