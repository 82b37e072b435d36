"""Records as lines for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timezone

import pytest

from ddtool.journal.records import Gap, Record
from ddtool.journal.show import line

RECORD = Record(
    boot="b1",
    seq=7,
    cursor="s=5;i=7",
    unix_us=1764442862123456,
    source="unit",
    pid=9,
    rank=3,
    level="error",
    text="[/bold] \x1b[2Jtext\x07",
)


def test_remote_text_stays_data() -> None:
    shown = line(RECORD, timezone.utc)
    assert shown == ("11-29 19:01:02.123 TP3     ", "[/bold] text ", "red")


@pytest.mark.parametrize(("source", "mark"), [("pid1", "systemd"), ("kernel", "kernel"), ("unit", "")])
def test_sources_are_marked(source: str, mark: str) -> None:
    assert line(replace(RECORD, rank=None, source=source), timezone.utc).head.split(" ", 2)[2].strip() == mark


def test_a_gap_says_its_reason() -> None:
    gap = replace(RECORD, source=None, rank=None, text="records are missing", gap=Gap("a", None, "vacuum"))
    assert line(gap, timezone.utc).text == "records are missing (vacuum)"


def test_a_gap_with_nothing_after_it_has_no_time() -> None:
    gap = replace(RECORD, unix_us=None, gap=Gap("a", None, "vacuum"))
    assert line(gap).head.strip("- ") == ""


@pytest.mark.parametrize("gap", [None, Gap("a", "b", "boot")])
def test_json_round_trip(gap: Gap | None) -> None:
    record = replace(RECORD, gap=gap)
    assert Record.from_json(record.to_json()) == record


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="record/2"):
        Record.from_json({**RECORD.to_json(), "schema": "ddtool.record/2"})
