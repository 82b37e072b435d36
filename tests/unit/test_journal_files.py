"""The headers of journald's files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ddtool.agent import journal_files
from ddtool.agent.journal_files import Holdings, holdings


def write(path: Path, series: int, head: int, tail: int) -> None:
    header = b"LPKSHHRH" + b"\1" * 64 + bytes([series] * 16) + b"\2" * 72 + struct.pack("<QQ", tail, head)
    path.write_bytes(header + b"\3" * 100)


def test_the_oldest_of_each_kind_and_the_newest_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "id").write_text("m1\n")
    monkeypatch.setattr(journal_files, "MACHINE_ID", tmp_path / "id")
    monkeypatch.setattr(journal_files, "ROOTS", (tmp_path / "var", tmp_path / "run"))
    assert holdings() == Holdings({}, {})
    folder = tmp_path / "var/m1"
    folder.mkdir(parents=True)
    a, b = "aa" * 16, "bb" * 16
    write(folder / "system.journal", 0xAA, 70, 90)
    write(folder / f"system@{a}-0000000000000014-00063b.journal", 0xAA, 20, 60)
    write(folder / "system@0006-77.journal~", 0xBB, 3, 5)
    write(folder / "user-1000.journal", 0xAA, 61, 95)
    write(folder / "user-1001.journal", 0xAA, 0, 0)  # nothing in it yet
    (folder / "system@deleted.journal").write_bytes(bytes(1000))
    (folder / "short.journal").write_bytes(b"LPKSHHRH")
    heads = {(a, "system"): 20, (b, "system"): 3, (a, "user-1000"): 61}
    assert holdings() == Holdings(heads, {a: 95, b: 5})
