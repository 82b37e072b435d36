"""One run's records for the evidence: its beginning and its end, whatever lies between."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Deque, Dict, Iterator, List

from .journal_entries import Entry, gap, seq_of
from .journal_pipeline import Filters, Pipeline
from .journalctl import Journalctl, first_of_invocation

FIRST, LAST = 3_000, 20_000
BYTES = 24 << 20
HEAD, LONG = 300, 1 << 16  # of a run whose lines are so long that even these are too much


def journal_of_run(service: str, invocation: str) -> bytes:
    """JSON lines of ddtool.record/1: the unit's, systemd's about it and the kernel's, from the run's first entry on.

    A run of many days says how it began (arguments, phases) and how it ended; what is left out is a gap record.
    """
    start = first_of_invocation(invocation)
    if start is None:
        return b""
    pipeline = Pipeline(service, Filters(), None)
    lines = [json.dumps(item).encode() + b"\n" for item in _records(pipeline, service, invocation, start)]
    return b"".join(_within(lines, BYTES))


def _records(pipeline: Pipeline, service: str, invocation: str, start: Entry) -> Iterator[Dict[str, Any]]:
    matches = matches_of(service, invocation)
    first = list(_entries(["-n", str(FIRST), f"--cursor={start['__CURSOR']}", *matches]))
    yield from pipeline.take(first)
    if len(first) < FIRST:
        yield from pipeline.flush()
        return
    seen = seq_of(first[-1]) or 0
    rest = [item for item in _entries(["-n", str(LAST + 1), *matches]) if _follows(item, start, seen)]
    if len(rest) > LAST:
        del rest[0]
        yield gap("cut", "the middle of this run is left out here", first[-1]["__CURSOR"], rest[0])
    yield from pipeline.take(rest)
    yield from pipeline.flush()


def _follows(entry: Entry, start: Entry, seq: int) -> bool:
    return entry.get("_BOOT_ID") == start.get("_BOOT_ID") and (seq_of(entry) or 0) > seq


def _entries(options: List[str]) -> Iterator[Entry]:
    with Journalctl(options) as journal:
        for batch in journal.batches():
            yield from batch


def matches_of(service: str, invocation: str) -> List[str]:
    """journalctl's matches for one run: an or of groups whose terms all hold."""
    return [
        *(f"_SYSTEMD_INVOCATION_ID={invocation}", "+"),
        *("_PID=1", f"INVOCATION_ID={invocation}", "+"),
        *("_UID=0", f"OBJECT_SYSTEMD_INVOCATION_ID={invocation}", "+"),
        *("_UID=0", f"COREDUMP_UNIT={service}", "+"),
        "_TRANSPORT=kernel",
    ]


def _within(lines: List[bytes], most: int) -> List[bytes]:
    """All lines, or the first few and as many from the end as fit into `most` bytes."""
    if sum(map(len, lines)) <= most:
        return lines
    head = [line for line in lines[:HEAD] if len(line) < LONG]
    room = most - sum(map(len, head))
    tail: Deque[bytes] = deque()
    for line in reversed(lines[HEAD:]):
        room -= len(line)
        if room < 0:
            break
        tail.appendleft(line)
    return [*head, *tail]
