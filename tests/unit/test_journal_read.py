"""Continuity, filters and positions of `journal.read`, without a journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.entries import UNIT, entry

from ddtool.agent import journal, journalctl
from ddtool.agent.errors import UsageError
from ddtool.agent.journal import Filters, Pipeline


def pipeline(**filters: Any) -> Pipeline:
    return Pipeline(UNIT, Filters(**filters), None)


def cursor(number: int, boot: str = "b1") -> str:
    return entry(number, boot=boot)["__CURSOR"]


def test_the_expected_record_is_not_given_out_again() -> None:
    reader = pipeline()
    reader.expect(cursor(5))
    assert reader.feed(entry(5)) == []
    (record,) = reader.feed(entry(6))
    assert record["seq"] == 6


@pytest.mark.parametrize(
    ("first", "reason"),
    [(entry(9), "vacuum"), (entry(9, boot="b2"), "boot"), (entry(4), "unknown")],
)
def test_a_start_that_is_gone_is_a_gap(first: dict[str, Any], reason: str) -> None:
    reader = pipeline(grep=re.compile("nothing matches this"))
    reader.expect(cursor(5))
    (gap,) = reader.feed(first)
    assert gap["gap"] == {"from": cursor(5), "to": first["__CURSOR"], "reason": reason}


def test_a_start_that_is_gone_and_nothing_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "current_boot", lambda: "b1")
    reader = pipeline()
    reader.expect(cursor(5))
    assert [item["gap"] for item in reader.missing()] == [{"from": cursor(5), "to": None, "reason": "vacuum"}]
    assert reader.missing() == []


class FakeJournalctl:
    """Instances hand out what `says` has for each, in turn: entries, then an error if there is one."""

    def __init__(self, says: list[list[Any]]) -> None:
        self.says, self.options = says, []

    def __call__(self, options: list[str]) -> FakeJournalctl:
        self.options.append(options)
        return self

    def __enter__(self) -> FakeJournalctl:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        for item in self.says.pop(0):
            if isinstance(item, Exception):
                raise item
            yield [item]


GONE = journalctl.FileGone("journalctl on the host: Failed to iterate through journal: Bad message")


def test_a_file_that_is_vacuumed_under_the_reader_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJournalctl([[entry(1), entry(2), GONE], [entry(7), entry(8)]])
    monkeypatch.setattr(journal, "Journalctl", fake)
    reader = pipeline()
    entries = journal.batches(reader, ["--since=@1"], ["-f"])
    records = [item for batch in entries for one in batch for item in reader.feed(one)]
    assert fake.options == [["--since=@1", "-f"], [f"--cursor={cursor(2)}", "-f"]]
    assert [item.get("gap", {}).get("reason") or item["seq"] for item in records] == [1, 2, "vacuum", 7, 8]


def test_a_damaged_journal_is_an_error_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJournalctl([[entry(1), GONE], *([entry(1), GONE] for _ in range(9))])
    monkeypatch.setattr(journal, "Journalctl", fake)
    reader = pipeline()
    with pytest.raises(journalctl.FileGone):
        for batch in journal.batches(reader, [], []):
            for one in batch:
                reader.feed(one)
    assert len(fake.options) == 1 + journal.TRIES


def test_a_reboot_is_one_gap_and_ends_an_incomplete_line() -> None:
    reader = pipeline()
    reader.feed(entry(1, "cut ", _LINE_BREAK="line-max"))
    old, gap, new = reader.feed(entry(2, "new", boot="b2"))
    assert (old["text"], new["text"]) == ("cut ", "new")
    assert gap["gap"] == {"from": cursor(1), "to": cursor(2, "b2"), "reason": "boot"}


def test_the_cursor_moves_past_what_filters_hold_back_but_not_past_an_incomplete_line() -> None:
    reader = pipeline(level="error")
    assert reader.feed(entry(1)) == []
    assert reader.cursor == cursor(1)
    reader.feed(entry(2, "begun", _LINE_BREAK="line-max"))
    reader.feed(entry(3, "other", _PID="8"))
    assert reader.cursor == cursor(1)
    reader.feed(entry(4, "ended"))
    assert reader.cursor == cursor(4)


def test_a_reader_made_from_memory_goes_on() -> None:
    first = pipeline()
    first.feed(entry(1, "[2025-11-29 19:01:02 TP5] Traceback (most recent call last):"))
    second = Pipeline(UNIT, Filters(), None, first.reader.memory())
    (record,) = second.feed(entry(2, '  File "x.py", line 1'))
    assert (record["rank"], record["level"]) == (5, "error")


def test_bad_ends_are_told_to_who_follows_whatever_the_filters() -> None:
    reader = pipeline(rank=3)
    failed = {"MESSAGE_ID": journal.UNIT_FAILED, "_PID": "1", "UNIT": UNIT, "_SYSTEMD_UNIT": "init.scope"}
    reader.feed(entry(1, INVOCATION_ID="earlier", **failed))
    reader.following = True
    assert reader.feed(entry(2, INVOCATION_ID="run2", **failed)) == []
    assert journal.frame(reader, [])["ended"] == ["run2"]
    assert journal.frame(reader, [])["ended"] == []


def test_a_new_run_forgets_the_old_ones_processes() -> None:
    reader = pipeline()
    reader.feed(entry(1, "[2025-11-29 19:01:02 TP5] here"))
    (record,) = reader.feed(entry(2, "no prefix", _SYSTEMD_INVOCATION_ID="run2"))
    assert record["rank"] is None


def test_filters() -> None:
    reader = pipeline(rank=1, level="warning", grep=re.compile("a.c"))
    texts = [
        "[2025-11-29 19:01:02 TP1] WARNING: a\x1b[1mbc",
        "[2025-11-29 19:01:02 TP1] WARNING: other",
        "[2025-11-29 19:01:02 TP0] WARNING: abc",
        "[2025-11-29 19:01:02 TP1] abc",
    ]
    kept = [item for number, text in enumerate(texts) for item in reader.feed(entry(number, text))]
    assert [item["seq"] for item in kept] == [0]


def test_bad_filters_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="unterminated"):
        Filters.parse("[", None, None)
    with pytest.raises(UsageError, match="no level"):
        Filters.parse(None, None, "loud")


def test_since_is_fixed_by_the_hosts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journalctl.time, "time", lambda: 1_000_000.0)
    assert journalctl.resolve_since("10min") == "@999400.000000"
    assert journalctl.resolve_since("1h 30m") == "@994600.000000"
    assert journalctl.resolve_since("1970-01-01T00:00:10Z") == "@10.000000"
    assert journalctl.resolve_since("yesterday") == "yesterday"


def test_kernel_lines_are_asked_for_only_on_request() -> None:
    assert "_TRANSPORT=kernel" not in journalctl.matches(UNIT, False)
    words = journalctl.matches(UNIT, True)
    assert words[:2] == [f"_SYSTEMD_UNIT={UNIT}", "+"]
    assert words[-2:] == ["+", "_TRANSPORT=kernel"]
