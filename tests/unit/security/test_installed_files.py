"""Installed files: RECORD is written by whoever made the wheel, or may write in the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddtool.agent import disk, facts, record

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="plays root against another user")


def site(tmp_path: Path, record_rows: str) -> Path:
    info = tmp_path / "venv/lib/python3.11/site-packages/sglang-0.5.12.dist-info"
    info.mkdir(parents=True)
    (info.parent / "sglang").mkdir()
    (info / "RECORD").write_text(record_rows)
    return tmp_path / "venv"


def test_record_cannot_have_other_files_read(tmp_path: Path) -> None:
    out = "../" * (len(tmp_path.parts) + 5)
    venv = site(
        tmp_path, f"sglang/{out}dev/zero,sha256=AAAA,1\nsglang/a.py,sha256=AAAA,1\n/dev/zero,sha256=AA,1\n"
    )
    assert record.verify(record.find(str(venv))) == {"sglang/a.py": "missing"}


@pytest.mark.timeout(10)
def test_a_pipe_or_a_device_among_the_files_is_an_error(tmp_path: Path) -> None:
    venv = site(tmp_path, "sglang/a.py,sha256=AAAA,1\n")
    os.mkfifo(venv / "lib/python3.11/site-packages/sglang/a.py")
    with pytest.raises(OSError, match="not a regular file"):
        record.verify(record.find(str(venv)))
    with pytest.raises(OSError, match="not a regular file"):
        disk.digest(Path("/dev/zero"))


@needs_root
def test_a_venv_that_others_may_write_is_named(tmp_path: Path) -> None:
    """Root runs its Python: whoever may write there is root."""
    place = tmp_path / "home" / "venv"
    place.mkdir(parents=True)
    assert facts.others_may_write(place) == []
    os.chown(place.parent, 1000, 1000)
    assert facts.others_may_write(place) == [f"{place.parent} (uid 1000, mode 755)"]
    os.chown(place.parent, 0, 0)
    place.chmod(0o1777)
    assert facts.others_may_write(place) == [f"{place} (uid 0, mode 1777)"]
    place.chmod(0o755)
    place.parent.chmod(0o1777)  # as /tmp: nobody can rename what is root's there
    assert facts.others_may_write(place) == []
