"""Bytes → numbered, readable lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash.lines import LINE_LIMIT, as_utf8, clean, numbered
from ddtool.crash.source import read

BAR = "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]"
BLOCKS = "Capturing batches (bs=1 avail_mem=8.61 GB): 100%|██████████| 8/8 [00:11<00:00,  1.41s/it]"
ERROR = "RuntimeError: The size of tensor a (8) must match"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain", "plain"),
        (b"CRLF\r", "CRLF"),
        (b"two\r\r", "two"),
        (b"\x1b[36m(Worker pid=1)\x1b[0m \x1b[1;31mError\x1b[0m", "(Worker pid=1) Error"),
        (b"\x1b]0;title\x07text\x1b[K", "text"),
        (b"cut \xe2\x96", "cut \ufffd"),
        (b"latin \xe9t\xe9", "latin \ufffdt\ufffd"),
        (b"\x00\x00text\x00 with\x07 controls\x7f", "text with controls"),
        ("line\u2028sep \x85".encode(), "linesep "),
        (b"\ttab stays", "\ttab stays"),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@pytest.mark.parametrize("prefix", ["", "May 21 10:11:12 host sglang[48211]: "])
@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (f"10%|#| 1/9 [00:01<00:09,  1.2it/s]\r{BAR}\r{ERROR}", ERROR),
        (f"{ERROR}\r{BAR}", ERROR),
        (f"{BAR}\r[2026-05-21 10:11:12 TP0] said\r{BLOCKS}\r   ", "said"),
        (f"{BAR}\r{BLOCKS}", BLOCKS),
        (f"  0%|          | 0/23 [00:00<?, ?it/s]\r{BLOCKS}", BLOCKS),
        (f"{BLOCKS}[2026-05-21 10:11:12 TP0] text", "text"),
        (f"{BLOCKS}Traceback (most recent call last):", "Traceback (most recent call last):"),
        (f"\r{BLOCKS}\r", BLOCKS),
        ("\r\r\r", ""),
        ("token usage: 90% [of 3 it/s] is no bar", "token usage: 90% [of 3 it/s] is no bar"),
    ],
)
def test_progress_bars_hide_nothing(printed: str, text: str, prefix: str) -> None:
    (line,) = read(io.BytesIO(f"{prefix}{printed}\r".encode()))
    assert line.text == text
    assert line.pid == (48211 if prefix else None)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_numbers_count_newlines_and_nothing_else(size: int) -> None:
    text = b"a\r\nb\rc\x0bd\x0ce\x85\n\n\xe2\x80\xa8f\n\x00\nlast"
    cut = [text[start : start + size] for start in range(0, len(text), size)]
    assert list(numbered(cut)) == list(enumerate(text.split(b"\n"), 1))


def test_an_endless_line_loses_its_middle() -> None:
    found = list(numbered([b"begin" + b"x" * LINE_LIMIT, b"y" * LINE_LIMIT, b"end\nnext"]))
    (_, first), second = found
    assert first.startswith(b"begin") and first.endswith(b"end") and len(first) == LINE_LIMIT
    assert second == (2, b"next")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("size", [1, 64, 65, 10_000])
def test_what_other_systems_write_with_a_byte_order_mark(encoding: str, size: int) -> None:
    text = f"Größe █\n{ERROR}\n"
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff", "utf-8-sig": b""}[encoding]
    raw = mark + text.encode(encoding)
    cut = [raw[start : start + size] for start in range(0, len(raw), size)]
    assert b"".join(as_utf8(cut)).decode() == text


@given(st.binary(max_size=2000))
def test_no_bytes_are_too_odd(raw: bytes) -> None:
    found = list(read(io.BytesIO(raw)))
    assert [line.number for line in found] == sorted(line.number for line in found)
    assert all("\n" not in line.text for line in found)
    if not raw.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):  # is as it is
        assert all(1 <= line.number <= raw.count(b"\n") + 1 for line in found)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        "%",
        "Started ",
        "[",
        "a.",
        "a:",
        "<30>",
        "0",
        "\\",
        '{"log":',
        "usage: ",
        '"',
        "(pid=1) ",
        "| ",
    ],
)
def test_a_very_long_line_takes_no_time_to_speak_of(piece: str) -> None:
    """No expression may try again from every position: such a line would take minutes (the test's time-out)."""
    text = piece * (500_000 // len(piece))
    assert len(list(read(io.BytesIO(f"May 21 10:11:12 host {text}\n{text}\nStarted {text}\n".encode())))) == 3
