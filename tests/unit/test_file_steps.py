"""What the host's step that swaps files leaves behind at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from ddtool.agent.steps import Files


def test_a_finish_that_was_killed_half_way_is_finished(tmp_path: Path) -> None:
    """The set of files is over and gone by then; the emptied drop-in folders are not."""
    folders = [tmp_path / name for name in ("empty.service.d", "used.service.d", "other")]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "used.service.d" / "theirs.conf").write_text("[Service]\n")
    files = [{"path": str(folder / "ours.conf"), "content": None} for folder in folders]
    Files(1, {"title": "", "files": files}).finish(SimpleNamespace(folder=tmp_path), {})  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "used.service.d"]
