"""The state folder stays small, and nothing that is needed goes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from ddtool.agent import audit, disk, ledger, objects, tidy
from ddtool.agent.disk import sha256

from .test_diag import PROBE, TRACE, WHEEL, A, B, Box, box  # noqa: F401  a fixture


def loose(box: Box, count: int, size: int = 1) -> list[str]:  # noqa: F811
    """Objects that nothing names, oldest first."""
    names = []
    for number in range(count):
        content = os.urandom(16) + bytes(size)
        path = objects.path(box.ctx, sha256(content))
        disk.make_dirs(path.parent)
        path.write_bytes(content)
        os.utime(path, (number, number))
        names.append(path.name)
    return names


def kept(box: Box) -> set[str]:  # noqa: F811
    return {path.name for path in (box.ctx.state / "objects").iterdir()}


def test_what_is_named_stays_however_old(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Baselines, patches that are on, adopted baselines, and what was known of a file that was given up."""
    box.do("toggle", enable=[TRACE, PROBE])
    box.put(B, b"mine\n")
    box.do("adopt", name="mine", files=[B], who="ann")
    adopted = box.ctx.state / "services" / "u" / "adopted.json"
    disk.make_dirs(adopted.parent)
    (unit,) = loose(box, 1)
    adopted.write_text(json.dumps({"files": [{"sha256": unit}]}))
    for path in (box.ctx.state / "objects").iterdir():
        os.utime(path, (0, 0))
    monkeypatch.setattr(tidy, "LOOSE_OBJECTS", 0)
    before = kept(box)
    loose(box, 3)
    tidy.state(box.ctx)
    assert kept(box) == before
    assert sha256(WHEEL[A]) in before and sha256(b"mine\n") in before and unit in before
    box.do("toggle", disable=["trace"])  # recomposes the file from baseline and the other patch's code
    assert b"pass" in box.read(A)
    box.do("restore")
    assert box.read(A) == WHEEL[A] and box.read(B) == b"mine\n"


def test_of_what_nobody_names_the_newest_stay(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(tidy, "LOOSE_OBJECTS", 4)
    monkeypatch.setattr(tidy, "LOOSE_BYTES", 1000)
    names = loose(box, 6)
    tidy.state(box.ctx)
    assert kept(box) == set(names[2:])
    large = loose(box, 3, 400)
    for number, name in enumerate(large):
        os.utime(objects.path(box.ctx, name), (100 + number,) * 2)
    tidy.state(box.ctx)
    assert kept(box) == set(large[1:])  # 416 bytes each


def test_the_audit_keeps_its_newer_half(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(tidy, "AUDIT_BYTES", 1000)
    path: Path = box.ctx.state / audit.FILE
    for number in range(60):
        disk.append_line(path, json.dumps({"unix": number, "unit": "u"}))
        tidy.state(box.ctx)
        assert path.stat().st_size <= 1000
    found = [item["unix"] for item in audit.newest_first(box.ctx)][::-1]
    assert found == list(range(found[0], 60)) and len(found) >= 15
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_does_not_fail_a_transaction_that_is_over(
    box: Box,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(path: Path, content: bytes, mode: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(tidy, "AUDIT_BYTES", 10)
    lines = json.dumps({"unix": 1, "unit": "u"})
    disk.append_line(box.ctx.state / audit.FILE, lines)
    monkeypatch.setattr(disk, "write_new", full)
    tidy.state(box.ctx)
    assert (box.ctx.state / audit.FILE).read_text() == lines + "\n"


def test_a_damaged_ledger_fails_no_transaction_of_another_installation(box: Box) -> None:  # noqa: F811
    ledger_of_another = box.ctx.state / "ledger" / "other.json"
    disk.make_dirs(ledger_of_another.parent)
    ledger_of_another.write_bytes(b"\xff" + sha256(b"").encode())
    tidy.state(box.ctx)
    assert sha256(b"") in tidy.referenced(box.ctx)


def test_files_that_were_given_up_are_remembered_to_a_bound(box: Box) -> None:  # noqa: F811
    book = ledger.Ledger(str(box.ctx.state / "l.json"), {"files": {}, "retired": []}, None)
    for number in range(ledger.KEPT_RETIRED + 5):
        book.files[f"{number}.py"] = {"sha": "x"}
        book.retire(f"{number}.py", "gone")
    retired = [entry["file"] for entry in book.data["retired"]]
    assert len(retired) == ledger.KEPT_RETIRED and retired[-1] == f"{ledger.KEPT_RETIRED + 4}.py"


def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    tidy.state(Box(tmp_path / "empty").ctx)
