"""journald's quirks, as a real journald (systemd 252, LineMax=100) wrote them, become whole lines of text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.entries import UNIT, entry

from ddtool.agent.journal_entries import Joiner, cursor_boot, cursor_seq, message_bytes, seq_of
from ddtool.agent.journal_pipeline import Filters, Pipeline

ENTRIES = [json.loads(line) for line in Path(__file__).with_name("test_journal_quirks.jsonl").open()]


def read(entries: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    pipeline = Pipeline(UNIT, Filters(**options), None)
    records = [record for item in entries for record in pipeline.feed(item)]
    return records + pipeline.flush()


def test_recorded_quirks() -> None:
    records = read(ENTRIES)
    assert [record["text"] for record in records] == [
        "Started quirks.service.",
        "[2025-11-29 19:01:02 TP3] Load weight begin.",
        "[2025-11-29 19:01:02 TP3] café " + "x" * 67 + "é" * 60 + " end",
        "\ufffd\ufffd not utf-8",
        "\x1b[31mWARNING:\x1b[0m red",
        "\r 10%|#  |\r 20%|## |",
        "nul",
        "here",
        "blanks",
        "half",
        "[2025-11-29 19:01:03 TP3] whole",
        "flood 0",
        "flood 1",
        "journald dropped lines here: Suppressed 367 messages from quirks.service",
        "after the flood",
        "quirks.service: Deactivated successfully.",
    ]
    assert [record["source"] for record in records][::15] == ["pid1", "pid1"]
    assert records[4]["level"] == "warning"
    # The forked child never printed a rank; its parent keeps the one it printed.
    assert [record["rank"] for record in records[8:12]] == [3, None, 3, 3]
    assert [record["seq"] for record in records] == sorted(record["seq"] for record in records)


def test_suppression_is_a_gap_between_the_lines_around_it() -> None:
    records = read(ENTRIES)
    gap = next(record for record in records if "gap" in record)
    before = records[records.index(gap) - 1]
    assert gap["gap"] == {"from": before["cursor"], "to": gap["cursor"], "reason": "suppression"}


def test_every_record_has_the_shared_format() -> None:
    keys = ["schema", "boot", "seq", "cursor", "unix_us", "source", "pid", "rank", "level", "text"]
    for record in read(ENTRIES):
        assert list(record)[: len(keys)] == keys
        assert record["schema"] == "ddtool.record/1"


def test_kernel_lines_have_the_kernels_own_level() -> None:
    line = {**entry(1, "NVRM: Xid (PCI:0000:01:00): 31"), "_TRANSPORT": "kernel", "PRIORITY": "3"}
    del line["_SYSTEMD_UNIT"], line["_PID"]
    (record,) = read([line])
    assert (record["source"], record["level"], record["pid"]) == ("kernel", "error", None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, b""),
        ("plain", b"plain"),
        ([104, 105, 255], b"hi\xff"),
        (["first", "second"], b"first\nsecond"),
        ([[104, 105], "second"], b"hi\nsecond"),
    ],
)
def test_message_forms(message: Any, expected: bytes) -> None:
    assert message_bytes(message) == expected


def test_sequence_number_of_old_and_new_journalctl() -> None:
    cursor = "s=0ecb;i=92b;b=b65b;m=30aab5e1;t=6616ef;x=b5c6"
    assert (cursor_seq(cursor), cursor_boot(cursor)) == (0x92B, "b65b")
    assert seq_of({"__CURSOR": cursor, "__SEQNUM": "7"}) == 7
    assert (cursor_seq("nonsense"), cursor_boot("nonsense")) == (None, None)


LINES = st.lists(
    st.tuples(st.sampled_from("123"), st.text(alphabet="aé€𝄞", min_size=1, max_size=12)), max_size=8
)


@given(LINES, st.integers(1, 9), st.data())
def test_split_lines_of_several_processes_join(lines: list[tuple[str, str]], size: int, data: Any) -> None:
    """Each process's lines are cut between any two bytes, and the pieces of the processes interleaved."""
    queues: dict[str, list[tuple[bytes, bool]]] = {}
    for pid, text in lines:
        raw = text.encode()
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        last = len(pieces) - 1
        queues.setdefault(pid, []).extend((piece, at < last) for at, piece in enumerate(pieces))
    joiner, out, number = Joiner(), [], 0
    while any(queues.values()):
        pid = data.draw(st.sampled_from(sorted(pid for pid in queues if queues[pid])))
        piece, more = queues[pid].pop(0)
        number += 1
        out += joiner.add(
            entry(number, list(piece), _PID=pid, **({"_LINE_BREAK": "line-max"} if more else {}))
        )
    assert not joiner.pending
    for pid in "123":
        joined = [line.message.decode() for line in out if line.entry["_PID"] == pid]
        assert joined == [text for owner, text in lines if owner == pid]
    assert [seq_of(line.entry) for line in out] == sorted(seq_of(line.entry) for line in out)


def test_nothing_overtakes_an_incomplete_line() -> None:
    joiner = Joiner()
    assert joiner.add(entry(1, "begun ", _LINE_BREAK="line-max")) == []
    assert joiner.add(entry(2, "other", _PID="8")) == []
    assert [line.message for line in joiner.add(entry(3, "ended"))] == [b"other", b"begun ended"]


def test_a_line_that_never_ends_is_given_out_as_it_is() -> None:
    joiner = Joiner()
    joiner.add(entry(1, "begun", _LINE_BREAK="line-max"))
    joiner.add(entry(2, "other", _PID="8"))
    assert [line.message for line in joiner.flush()] == [b"begun", b"other"]
    assert not joiner.pending
