"""The request `journal.read`: a unit's records, systemd's word on it and the kernel's, merged.

One journalctl reads all three, so their order is journald's (boot and sequence), never the wall clock's.
Every frame carries the cursor behind its last record and what the reader has learned of each process; a
reader that starts from the two goes on as if nothing had happened.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, Optional

from . import unit as units
from .errors import UsageError
from .journal_entries import Entry
from .journal_files import holdings
from .journal_pipeline import Filters, Pipeline
from .journalctl import FileGone, Journalctl, first_of_run, matches, resolve_since
from .registry import Context, op

MAX_LIMIT = 20_000  # they travel in one frame
PENDING_S = 1.0  # how long a line may stay incomplete
TRIES = 3  # to get beyond one entry
CURSOR_S = 1.0  # how often the cursor is sent when every record is filtered out
QUIET_S = 10.0  # how often a reader without news makes sure that there is none

Frame = Dict[str, Any]


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
        yield from live(pipeline, batches(pipeline, start, ["-f", "-n", "all", *where]), where)


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
        kept.extend(pipeline.take(batch))
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


def live(pipeline: Pipeline, entries: Iterator[List[Entry]], where: List[str]) -> Iterator[Optional[Frame]]:
    """What the journal gets from now on, until journalctl is ended (a host that shuts down does)."""
    told, told_at, fed_at = pipeline.cursor, time.monotonic(), time.monotonic()
    checked_at = fed_at
    for batch in entries:
        records = pipeline.take(batch)
        now = time.monotonic()
        if batch:
            fed_at = checked_at = now
        elif pipeline.pending and now - fed_at > PENDING_S:
            records = pipeline.flush()
        elif not pipeline.pending and now - checked_at > QUIET_S:
            records, checked_at = quiet(pipeline, where), now
        if records or pipeline.ended or (pipeline.cursor != told and now - told_at > CURSOR_S):
            yield frame(pipeline, records)
            told, told_at = pipeline.cursor, now
        else:
            yield None


def quiet(pipeline: Pipeline, where: List[str]) -> List[Dict[str, Any]]:
    """A gap if the reader without news has missed some; nothing if journalctl is only late."""
    before = holdings()
    with Journalctl(["-n", "1", *where]) as journal:
        newest = journal.first()
    late = newest is not None and newest["__CURSOR"] != pipeline.seen
    return [] if late else pipeline.caught_up(before)
