"""The journal of a run in its evidence: whole when it is short, both ends and a gap when it is long, never huge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.entries import UNIT, entry

from ddtool.agent import journal_continuity, run_journal
from ddtool.agent.journal_files import Holdings


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for journalctl: entries 1 to `count` of the run, and older kernel lines before them.

    Between two entries of the run are `every` - 1 of others; `gone` are deleted after its beginning was read.
    """

    def holds(
        count: int, text: str = "text", older: int = 5, every: int = 1, gone: range = range(0)
    ) -> list[dict[str, Any]]:
        run = [entry(100 + every * number, f"{text} {number}") for number in range(count)]
        later = [item for number, item in enumerate(run) if number not in gone]
        kernel = [
            entry(number, "old kernel line", _TRANSPORT="kernel", _SYSTEMD_UNIT=None)
            for number in range(older)
        ]

        def entries(options: list[str]) -> Any:
            limit = int(options[options.index("-n") + 1])
            from_start = any(option.startswith("--cursor=") for option in options)
            return iter(run[:limit] if from_start else [*kernel, *later][-limit:])

        monkeypatch.setattr(run_journal, "_entries", entries)
        monkeypatch.setattr(run_journal, "first_of_invocation", lambda invocation: run[0] if run else None)
        return read()

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in run_journal.journal_of_run(UNIT, "run1").splitlines()]

    monkeypatch.setattr(run_journal, "FIRST", 30)
    monkeypatch.setattr(run_journal, "LAST", 200)
    return holds


def texts(records: list[dict[str, Any]]) -> list[str]:
    return [item["text"] for item in records if "gap" not in item]


@pytest.mark.parametrize("count", [1, 29, 30, 31, 200, 229, 230])
def test_a_short_run_is_whole_and_begins_with_itself(journal: Any, count: int) -> None:
    records = journal(count)
    assert texts(records) == [f"text {number}" for number in range(count)]
    assert all("gap" not in item for item in records)


def test_of_a_long_run_both_ends_are_kept_and_the_hole_is_told(journal: Any) -> None:
    records = journal(5000)
    assert texts(records) == [f"text {number}" for number in [*range(30), *range(4800, 5000)]]
    (gap,) = [item for item in records if "gap" in item]
    assert gap["gap"]["reason"] == "cut" and records.index(gap) == 30


def test_what_is_vacuumed_while_the_rest_of_a_run_is_read_is_told(
    journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(
        [1, 1, 220]
    )  # the oldest entry in the files: at first, after the beginning was read, at the end
    monkeypatch.setattr(
        journal_continuity, "holdings", lambda: Holdings({("5", "system"): next(left)}, {"5": 1000})
    )
    records = journal(100, every=2, gone=range(30, 60))
    assert texts(records) == [f"text {number}" for number in [*range(30), *range(60, 100)]]
    (gap,) = [item for item in records if "gap" in item]
    assert gap["gap"]["reason"] == "vacuum" and records.index(gap) == 30


def test_long_lines_cost_the_middle_and_not_the_end(journal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_journal, "BYTES", 100_000)
    monkeypatch.setattr(run_journal, "HEAD", 3)
    kept = texts(journal(150, text="x" * 2000))
    assert kept[0].endswith(" 0") and kept[-1].endswith(" 149")
    assert sum(map(len, kept)) < 100_000


def test_a_run_that_the_journal_forgot_is_an_empty_file(journal: Any) -> None:
    assert journal(0) == []
