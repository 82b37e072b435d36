"""Entries in journal order to records: what is missing between them, joined lines, rank and level, filters.

A start cursor must come back as the first entry, and no entry may lie in files that are gone; else a gap says so.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Pattern

from . import unit as units
from .errors import UsageError
from .journal_continuity import Continuity
from .journal_entries import (
    SUPPRESSED,
    UNIT_FAILED,
    Entry,
    Joiner,
    Whole,
    cursor_boot,
    cursor_seq,
    gap,
    invocation_of,
    pid_of,
    record,
    seq_of,
    source_of,
)
from .journal_files import Holdings
from .journal_text import LEVELS, PRIORITY_LEVELS, Reader, plain, rank_of_title, severity


class Filters(NamedTuple):
    """Which records are given out; gaps always are."""

    grep: Optional[Pattern[str]] = None
    rank: Optional[int] = None
    level: Optional[str] = None

    @classmethod
    def parse(cls, grep: Optional[str], rank: Optional[int], level: Optional[str]) -> Filters:
        if level is not None and level not in LEVELS:
            raise UsageError(f"no level {level!r}", hint="levels: " + ", ".join(LEVELS))
        try:
            return cls(re.compile(grep) if grep else None, rank, level)
        except re.error as error:
            hint = "patterns are Python regular expressions"
            raise UsageError(f"grep pattern {grep!r}: {error}", hint=hint) from None

    def any(self) -> bool:
        return any(item is not None for item in self)

    def keep(self, item: Dict[str, Any]) -> bool:
        if "gap" in item:
            return True
        if self.rank is not None and item["rank"] != self.rank:
            return False
        if self.level is not None and severity(item["level"]) < severity(self.level):
            return False
        return self.grep is None or self.grep.search(plain(item["text"])) is not None


class Pipeline:
    """Entries in journal order to records: continuity, joining, rank and level, filters."""

    def __init__(
        self, unit: str, filters: Filters, since: Optional[str], memory: Optional[Dict[str, Any]] = None
    ) -> None:
        self.unit = unit
        self.filters = filters
        self.since = since
        self.reader = Reader(memory)
        self.cursor: Optional[str] = None  # behind the last line given out or filtered out
        self.seen: Optional[str] = None  # the last entry taken in
        self.following = False  # what comes is new to the reader
        self.ended: List[str] = []  # runs that ended badly since the last frame, while following
        self._expected: Optional[str] = None
        self._boot: Optional[str] = None
        self._joiner = Joiner()
        self.continuity = Continuity()

    def expect(self, cursor: str) -> None:
        """The next entry must be this one, which was given out before."""
        self._expected = cursor
        self.cursor = self.cursor or cursor

    @property
    def pending(self) -> bool:
        return self._joiner.pending

    def take(self, batch: Iterable[Entry]) -> List[Dict[str, Any]]:
        """feed() entries that came together: what was seen of the files before says nothing about them."""
        self.continuity.new_batch()
        return [item for entry in batch for item in self.feed(entry)]

    def feed(self, entry: Entry) -> List[Dict[str, Any]]:
        cursor, boot = entry["__CURSOR"], entry.get("_BOOT_ID")
        expected, self._expected = self._expected, None
        known_boot, self._boot = self._boot, boot
        before, self.seen = self.seen, cursor
        follows = self.continuity.follows(entry, resumed=expected == cursor)
        if expected == cursor:
            return []
        if self.following and entry.get("MESSAGE_ID") == UNIT_FAILED:
            self.ended.append(invocation_of(entry, self.unit) or "")
        out: List[Dict[str, Any]] = []
        if expected is not None:
            out = [*self._finish(), lost(expected, entry)]
        elif known_boot not in (None, boot):
            out = [*self._finish(), gap("boot", "the host was restarted here", before, entry)]
        elif not follows:
            out = [*self._finish(), passed_over(before, entry)]
        out.extend(self._records(self._joiner.add(entry)))
        if not self.pending:
            self.cursor = cursor
        return out

    def flush(self) -> List[Dict[str, Any]]:
        """Give out an incomplete line as it is."""
        out = self._finish()
        self.cursor = self.seen or self.cursor
        return out

    def missing(self) -> List[Dict[str, Any]]:
        """At the end of the journal: a gap if the expected entry never came."""
        expected, self._expected = self._expected, None
        return [] if expected is None else [lost(expected, None)]

    def caught_up(self, before: Holdings) -> List[Dict[str, Any]]:
        """The newest entry, of all that the files held at `before`, was taken in: a gap if some are gone."""
        return [] if self.continuity.caught_up(before) else [passed_over(self.seen, None)]

    def _finish(self) -> List[Dict[str, Any]]:
        return self._records(self._joiner.flush())

    def _records(self, lines: List[Whole]) -> List[Dict[str, Any]]:
        return [item for item in map(self._record, lines) if self.filters.keep(item)]

    def _record(self, line: Whole) -> Dict[str, Any]:
        entry = line.entry
        text = line.message.decode("utf-8", "replace")
        if entry.get("MESSAGE_ID") == SUPPRESSED:
            return gap("suppression", f"journald dropped lines here: {text}", self.cursor, entry)
        priority = PRIORITY_LEVELS[int(entry.get("PRIORITY", 6)) & 7]
        source, pid = source_of(entry, self.unit), pid_of(entry)
        if source != "kernel":
            self.reader.begin(invocation_of(entry, self.unit))
        if source != "unit":
            return record(entry, self.unit, text, None, priority)
        if pid is not None and not self.reader.knows(pid):
            self.reader.learn(pid, rank_of_process(pid, entry))
        shown = plain(text)
        level = self.reader.level(pid, shown) or (priority if priority != "info" else None)
        return record(entry, self.unit, text, self.reader.rank(pid, shown), level)


def lost(expected: str, entry: Optional[Entry]) -> Dict[str, Any]:
    """The gap of a cursor whose entry is no longer there. `entry` is the first one after it, if any."""
    boot, seq = cursor_boot(expected), cursor_seq(expected)
    next_boot = entry.get("_BOOT_ID") if entry else current_boot()
    next_seq = seq_of(entry) if entry else None
    if boot != next_boot:
        return gap("boot", "the host was restarted, and its journal from before is gone", expected, entry)
    if entry is None or (seq is not None and next_seq is not None and next_seq > seq):
        return gap("vacuum", "records are missing here: the host's journal was vacuumed", expected, entry)
    return gap(
        "unknown", "records may be missing here: the journal no longer has the last one read", expected, entry
    )


def passed_over(before: Optional[str], entry: Optional[Entry]) -> Dict[str, Any]:
    text = "records may be missing here: the host's journal was vacuumed"
    return gap("vacuum", text, before, entry)


def current_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")


def rank_of_process(pid: int, entry: Entry) -> Optional[int]:
    """By process title, when the process that wrote `entry` is still alive."""
    process = units.process(pid)
    written_s = int(entry.get("__MONOTONIC_TIMESTAMP", 0)) / 1e6
    if process is None or entry.get("_BOOT_ID") != current_boot():
        return None
    started_s = process.start / os.sysconf("SC_CLK_TCK")
    return rank_of_title(process.title) if started_s <= written_s + 0.02 else None
