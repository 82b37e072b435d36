"""Continuity, filters and positions of `journal.read`, without a journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.entries import UNIT, entry

from ddtool.agent import journal, journal_continuity, journal_pipeline, journalctl
from ddtool.agent.errors import UsageError
from ddtool.agent.journal_entries import UNIT_FAILED
from ddtool.agent.journal_files import Holdings
from ddtool.agent.journal_pipeline import Filters, Pipeline


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> Holdings:
    """The entries that journald's files hold, for the test to change: of series 5, from 1 on."""
    files = Holdings({("5", "system"): 1}, {"5": 1000})
    monkeypatch.setattr(journal_continuity, "holdings", lambda: files)
    monkeypatch.setattr(journal, "holdings", lambda: files)
    return files


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
    monkeypatch.setattr(journal_pipeline, "current_boot", lambda: "b1")
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
            yield [item] if item else []

    def first(self) -> dict[str, Any] | None:
        return self.says.pop(0)[0]


GONE = journalctl.FileGone("journalctl on the host: Failed to iterate through journal: Bad message")


def test_a_file_that_is_vacuumed_under_the_reader_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJournalctl([[entry(1), entry(2), GONE], [entry(7), entry(8)]])
    monkeypatch.setattr(journal, "Journalctl", fake)
    reader = pipeline()
    entries = journal.batches(reader, ["--since=@1"], ["-f"])
    records = [item for batch in entries for item in reader.take(batch)]
    assert fake.options == [["--since=@1", "-f"], [f"--cursor={cursor(2)}", "-f"]]
    assert [item.get("gap", {}).get("reason") or item["seq"] for item in records] == [1, 2, "vacuum", 7, 8]


def test_a_damaged_journal_is_an_error_after_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeJournalctl([[entry(1), GONE], *([entry(1), GONE] for _ in range(9))])
    monkeypatch.setattr(journal, "Journalctl", fake)
    reader = pipeline()
    with pytest.raises(journalctl.FileGone):
        for batch in journal.batches(reader, [], []):
            reader.take(batch)
    assert len(fake.options) == 1 + journal.TRIES


def read_live(monkeypatch: pytest.MonkeyPatch, held: Holdings, *says: Any) -> list[dict[str, Any]]:
    """What is given out when one journalctl says this; a number is the oldest entry that is left from there on."""

    def said() -> Iterator[list[dict[str, Any]]]:
        for item in says:
            if isinstance(item, int):
                held.heads["5", "system"] = item
            else:
                yield item

    monkeypatch.setattr(journal, "QUIET_S", -1.0)
    reader = pipeline()
    frames = [frame for frame in journal.live(reader, said(), []) if frame]
    return [item.get("gap", item["seq"]) for frame in frames for item in frame["records"]]


def missing(start: int, end: int | None) -> dict[str, Any]:
    return {"from": cursor(start), "to": end and cursor(end), "reason": "vacuum"}


def test_what_journalctl_passes_over_in_a_file_that_came_and_went_is_a_gap(
    monkeypatch: pytest.MonkeyPatch, held: Holdings
) -> None:
    """The reader's connection holds, its journalctl ends at no error: only the files tell."""
    says = [[entry(1), entry(4)], 9, [entry(12), entry(15)]]
    assert read_live(monkeypatch, held, *says) == [1, 4, missing(4, 12), 12, 15]


def test_files_that_go_while_the_first_entries_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch, held: Holdings
) -> None:
    assert read_live(monkeypatch, held, 9, [entry(2), entry(12)]) == [2, missing(2, 12), 12]


def test_neighbours_and_what_lies_between_them_in_a_whole_journal_are_no_gap(
    monkeypatch: pytest.MonkeyPatch, held: Holdings
) -> None:
    assert read_live(monkeypatch, held, [entry(1), entry(7)], 8, [entry(8)], [entry(9)]) == [1, 7, 8, 9]


def test_an_idle_unit_misses_nothing_when_old_files_go(
    monkeypatch: pytest.MonkeyPatch, held: Holdings
) -> None:
    monkeypatch.setattr(journal, "Journalctl", FakeJournalctl([[entry(2)]]))
    assert read_live(monkeypatch, held, [entry(2)], [], 700, [entry(1005)]) == [2, 1005]


def test_a_late_journalctl_proves_nothing(monkeypatch: pytest.MonkeyPatch, held: Holdings) -> None:
    monkeypatch.setattr(journal, "Journalctl", FakeJournalctl([[entry(5)]]))
    assert read_live(monkeypatch, held, [entry(2)], [], 700, [entry(1005)]) == [2, missing(2, 1005), 1005]


def test_lines_that_went_before_a_unit_fell_silent_are_told(
    monkeypatch: pytest.MonkeyPatch, held: Holdings
) -> None:
    monkeypatch.setattr(journal, "Journalctl", FakeJournalctl([[None], [None]]))
    assert read_live(monkeypatch, held, [entry(2)], 700, [], [], [entry(1005)]) == [2, missing(2, None), 1005]


def test_a_resume_in_a_file_that_stayed_while_the_systems_files_went(held: Holdings) -> None:
    held.heads["5", "system"] = 9
    reader = pipeline()
    reader.expect(cursor(5))
    assert reader.feed(entry(5)) == []
    gap, record = reader.feed(entry(12))
    assert (gap["gap"], record["seq"]) == (missing(5, 12), 12)


def test_a_first_login_is_no_gap_and_a_persons_vacuumed_file_is_one(held: Holdings) -> None:
    reader = pipeline()
    reader.feed(entry(5))
    held.heads["5", "user-1000"] = 7
    assert [item["seq"] for item in reader.take([entry(9)])] == [9]
    held.heads["5", "user-1000"] = 20
    assert [item.get("gap") for item in reader.take([entry(22)])] == [missing(9, 22), None]


def test_what_was_vacuumed_before_the_reader_began_is_no_gap(held: Holdings) -> None:
    """A person's file that stayed is older than the system's."""
    held.heads["5", "system"] = 50
    reader = pipeline()
    assert [item["seq"] for number in (5, 9, 60, 70) for item in reader.feed(entry(number))] == [5, 9, 60, 70]


def test_a_journal_begun_anew_is_a_gap_when_the_old_one_is_gone(held: Holdings) -> None:
    reader = pipeline()
    reader.feed(entry(5))
    held.heads[("6", "system")] = 1
    other = {**entry(1), "__CURSOR": entry(1)["__CURSOR"].replace("s=5", "s=6")}
    assert "gap" not in reader.feed(other)[0]
    held.heads.pop(("6", "system"))
    assert "gap" in reader.take([entry(8)])[0]


def test_files_that_cannot_be_read_prove_nothing(held: Holdings) -> None:
    reader = pipeline()
    reader.feed(entry(5))
    held.heads.clear()
    assert "gap" not in reader.take([entry(8)])[0]


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
    failed = {"MESSAGE_ID": UNIT_FAILED, "_PID": "1", "UNIT": UNIT, "_SYSTEMD_UNIT": "init.scope"}
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
