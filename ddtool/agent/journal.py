"""The request `journal.read`: a unit's records, systemd's word on it and the kernel's, merged.

One journalctl reads all three, so their order is journald's (boot and sequence), never the wall clock's.
Every frame carries the cursor behind its last record and what the reader has learned of each process; a
reader that starts from the two goes on as if nothing had happened. A start cursor must come back as the
first entry, or records are missing.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Pattern

from . import unit as units
from .errors import UsageError
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
from .journal_text import LEVELS, PRIORITY_LEVELS, Reader, plain, rank_of_title, severity
from .journalctl import FileGone, Journalctl, first_of_run, matches, resolve_since
from .registry import Context, op

MAX_LIMIT = 20_000  # they travel in one frame
PENDING_S = 1.0  # how long a line may stay incomplete
TRIES = 3  # to get beyond one entry
CURSOR_S = 1.0  # how often the cursor is sent when every record is filtered out

Frame = Dict[str, Any]


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

    def expect(self, cursor: str) -> None:
        """The next entry must be this one, which was given out before."""
        self._expected = cursor
        self.cursor = self.cursor or cursor

    @property
    def pending(self) -> bool:
        return self._joiner.pending

    def feed(self, entry: Entry) -> List[Dict[str, Any]]:
        cursor, boot = entry["__CURSOR"], entry.get("_BOOT_ID")
        expected, self._expected = self._expected, None
        known_boot, self._boot = self._boot, boot
        before, self.seen = self.seen, cursor
        if expected == cursor:
            return []
        if self.following and entry.get("MESSAGE_ID") == UNIT_FAILED:
            self.ended.append(invocation_of(entry, self.unit) or "")
        out: List[Dict[str, Any]] = []
        if expected is not None:
            out = [*self._finish(), lost(expected, entry)]
        elif known_boot not in (None, boot):
            out = [*self._finish(), gap("boot", "the host was restarted here", before, entry)]
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


def start_options(
    unit: str, since: Optional[str], after_cursor: Optional[str], filters: Filters
) -> List[str]:
    """Where to begin. Filters without a `since` look through the current run."""
    if not after_cursor and (since == "invocation" or (since is None and filters.any())):
        after_cursor, since = first_of_run(unit), None
    position = f"--cursor={after_cursor}" if after_cursor else since and f"--since={since}"
    return [position] if position else []


@op("journal.read")
def read(
    ctx: Context,
    unit: str,
    follow: bool = False,
    since: Optional[str] = None,
    after_cursor: Optional[str] = None,
    memory: Optional[Dict[str, Any]] = None,
    grep: Optional[str] = None,
    rank: Optional[int] = None,
    level: Optional[str] = None,
    kernel: bool = False,
    limit: Optional[int] = None,
) -> Iterator[Optional[Frame]]:
    """Frames `{records, cursor, memory, ended}`: ddtool.record/1, the two things that a resuming reader sends back,
    and the runs that ended badly meanwhile, whatever the filters hold back.

    `limit`: only the last so many records of what is there now; what `follow` adds later is not counted.
    """
    name = units.service(unit)
    filters = Filters.parse(grep, rank, level)
    if limit is not None and not 0 <= limit <= MAX_LIMIT:
        raise UsageError(f"-n takes 0 to {MAX_LIMIT}", hint="--since reads everything from a moment on")
    since = resolve_since(since) if since else None
    pipeline = Pipeline(name, filters, since, memory)
    if after_cursor:
        pipeline.expect(after_cursor)
        pipeline.following = follow
    start = start_options(name, since, after_cursor, filters)
    # With a start position journalctl's own -n means the first lines, not the last. At least one line is read,
    # or following would not know where to begin.
    tail = ["-n", str(max(1, limit))] if limit is not None and not start else []
    where = matches(name, kernel)
    yield from backlog(pipeline, batches(pipeline, [*tail, *start], where), limit, follow)
    if follow:
        pipeline.following = True
        if pipeline.seen:
            pipeline.expect(pipeline.seen)
            start = [f"--cursor={pipeline.seen}"]
        # -n all: else `-f` begins ten lines before the end, or loses the first lines of a unit that had none.
        yield from live(pipeline, batches(pipeline, start, ["-f", "-n", "all", *where]))


def batches(pipeline: Pipeline, start: List[str], where: List[str]) -> Iterator[List[Entry]]:
    """Entries from `start` on. When journald deletes a file under journalctl, another goes on behind the last entry."""
    tried: List[Optional[str]] = []
    while True:
        try:
            with Journalctl([*start, *where]) as journal:
                yield from journal.batches()
            return
        except FileGone:
            if tried.count(pipeline.seen) == TRIES:  # it comes no further: damaged
                raise
            tried.append(pipeline.seen)
            if pipeline.seen:
                pipeline.expect(pipeline.seen)
                start = [f"--cursor={pipeline.seen}"]


def frame(pipeline: Pipeline, records: List[Dict[str, Any]]) -> Frame:
    ended, pipeline.ended = pipeline.ended, []
    return {
        "ended": ended,
        "records": records,
        "cursor": pipeline.cursor,
        "since": pipeline.since,
        "memory": pipeline.reader.memory(),
    }


def backlog(
    pipeline: Pipeline, entries: Iterator[List[Entry]], limit: Optional[int], follow: bool
) -> Iterator[Optional[Frame]]:
    """What the journal holds now."""
    kept: Deque[Dict[str, Any]] = deque(maxlen=limit)
    for batch in entries:
        for entry in batch:
            kept.extend(pipeline.feed(entry))
        if limit is None and kept:
            yield frame(pipeline, list(kept))
            kept.clear()
        else:
            yield None
    kept.extend(pipeline.missing())
    if not follow:
        kept.extend(pipeline.flush())
    # One frame: the cursor is behind all of them, and a cut between two frames must not skip the second.
    yield frame(pipeline, list(kept))


def live(pipeline: Pipeline, entries: Iterator[List[Entry]]) -> Iterator[Optional[Frame]]:
    """What the journal gets from now on, until journalctl is ended (a host that shuts down does)."""
    told, told_at, fed_at = pipeline.cursor, time.monotonic(), time.monotonic()
    for batch in entries:
        records = [item for entry in batch for item in pipeline.feed(entry)]
        now = time.monotonic()
        if batch:
            fed_at = now
        elif pipeline.pending and now - fed_at > PENDING_S:
            records = pipeline.flush()
        if records or pipeline.ended or (pipeline.cursor != told and now - told_at > CURSOR_S):
            yield frame(pipeline, records)
            told, told_at = pipeline.cursor, now
        else:
            yield None
