"""Files, pipes and archives, whole and damaged."""

from __future__ import annotations

import gzip
import io
import json
import sys
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash.source import lines, read

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = "\n".join(f"[2026-05-21 10:12:31 TP{rank}] line {rank}" for rank in range(3000)).encode()
PACKERS = {"gzip": gzip.compress, "zstd": zstd.compress}


class Pipe:
    """A stream that gives a few bytes at a time and can go forward only."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        size = len(self._raw) if size < 0 else min(size, 777)
        part, self._raw = self._raw[:size], self._raw[size:]
        return part


def texts(stream: BinaryIO) -> list[str]:
    return [line.text for line in read(stream)]


EXPECTED = [f"line {rank}" for rank in range(3000)]


@pytest.mark.parametrize("name", PACKERS)
def test_archives_are_known_by_their_first_bytes(name: str) -> None:
    packed = PACKERS[name](TEXT)
    assert texts(io.BytesIO(packed)) == EXPECTED
    assert texts(cast(BinaryIO, Pipe(packed))) == EXPECTED
    assert [line.text for line in lines(io.BytesIO(packed), [])] == EXPECTED


@pytest.mark.parametrize("name", PACKERS)
def test_archives_of_several_members(name: str) -> None:
    half = TEXT.index(b"\n", len(TEXT) // 2) + 1
    assert texts(io.BytesIO(PACKERS[name](TEXT[:half]) + PACKERS[name](TEXT[half:]))) == EXPECTED


@pytest.mark.parametrize("name", PACKERS)
def test_a_damaged_archive_gives_what_is_before_the_damage_and_says_so(name: str) -> None:
    noise = bytes(range(256)) * 4000  # so that there is more than one block
    packed = PACKERS[name](TEXT + b"\n" + noise)
    for damaged in (packed[:-9], packed[: len(packed) // 2]):
        found = texts(io.BytesIO(damaged))
        assert "the compressed input is damaged from here on" in found[-1]
    cut = texts(io.BytesIO(PACKERS[name](TEXT)[:-1]))
    if name == "gzip":
        assert cut[:100] == EXPECTED[:100]
    else:  # zstd gives whole blocks only, and this text is one
        assert not any(line in EXPECTED for line in cut if line)
    assert "the compressed input is damaged from here on" in cut[-1]


@given(st.sampled_from([b"\x1f\x8b", b"\x28\xb5\x2f\xfd"]), st.binary(max_size=200))
def test_what_only_looks_like_an_archive(magic: bytes, rest: bytes) -> None:
    list(read(io.BytesIO(magic + rest)))


def test_an_empty_input_has_no_lines() -> None:
    assert list(read(io.BytesIO(b""))) == []
    assert lines(io.BytesIO(b""), ["x"]) == []


def test_records_keep_what_the_host_knew() -> None:
    record = {
        "schema": "ddtool.record/1",
        "boot": "b",
        "seq": 7,
        "cursor": "c",
        "unix_us": 1779358272000000,
        "source": "unit",
        "pid": 482,
        "rank": 3,
        "level": "error",
        "text": "RuntimeError: no",
    }
    gap = record | {
        "source": None,
        "pid": None,
        "rank": None,
        "level": "warning",
        "text": "records are missing",
        "gap": {},
    }
    prefixed = record | {"text": "[2026-05-21 10:12:31 TP3] Load weight begin.", "rank": None, "level": None}
    text = "\n".join(map(json.dumps, [record, gap, prefixed]))
    first, missing, last = read(io.BytesIO(text.encode()))
    assert (first.number, first.text, first.source, first.pid, first.rank, first.level) == (
        1,
        "RuntimeError: no",
        "unit",
        482,
        3,
        "error",
    )
    assert first.unix_us == 1779358272000000
    assert (missing.number, missing.source, missing.text) == (2, "pid1", "records are missing")
    assert (last.text, last.rank, last.level) == ("Load weight begin.", 3, "info")
