"""Running journalctl: what it is asked for, and its entries in batches."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from datetime import datetime
from typing import Any, Iterator, List, Optional

from . import unit as units
from .errors import AgentError, UsageError
from .journal_entries import FIELDS, Entry

BATCH = 200
BATCH_S = 0.1

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(" + "|".join(sorted(_SECONDS, key=len, reverse=True)) + r")\s*")
_DURATION = re.compile(f"(?:{_PART.pattern})+")


def matches(unit: str, kernel: bool) -> List[str]:
    """journalctl's own list for `--unit`, and the kernel's lines: an or of groups whose terms all hold."""
    groups = [
        [f"_SYSTEMD_UNIT={unit}"],
        [f"UNIT={unit}", "_PID=1"],
        [f"OBJECT_SYSTEMD_UNIT={unit}", "_UID=0"],
        [f"COREDUMP_UNIT={unit}", "_UID=0"],
    ]
    if kernel:
        groups.append(["_TRANSPORT=kernel"])
    return [word for group in groups for word in ["+", *group]][1:]


def command(*options: str) -> List[str]:
    # --all: else a field above 4 KiB is printed as null, and SGLang's line of arguments is one.
    return [
        "journalctl",
        "-q",
        "--no-pager",
        "--all",
        "-o",
        "json",
        "--output-fields=" + ",".join(FIELDS),
        *options,
    ]


class FileGone(AgentError):
    """journald deleted or rotated a file that journalctl was reading."""


class Journalctl:
    """A running journalctl, read in batches."""

    def __init__(self, options: List[str]) -> None:
        self._process = subprocess.Popen(
            command(*options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdout
        self._fd = self._process.stdout.fileno()
        self._rest = b""

    def __enter__(self) -> Journalctl:
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.kill()
        self._process.communicate()

    def batches(self) -> Iterator[List[Entry]]:
        """Lists of entries; an empty one after a tenth of a second without news."""
        batch: List[Entry] = []
        ready_at = 0.0
        while True:
            wait = max(0.0, ready_at - time.monotonic()) if batch else BATCH_S
            if not select.select([self._fd], [], [], wait)[0]:
                yield batch
                batch = []
                continue
            data = os.read(self._fd, 1 << 18)
            if not data:
                break
            if not batch:
                ready_at = time.monotonic() + BATCH_S
            batch.extend(self._entries(data))
            if len(batch) >= BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
        self._check()

    def first(self) -> Optional[Entry]:
        return next((entry for batch in self.batches() for entry in batch), None)

    def _entries(self, data: bytes) -> List[Entry]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _check(self) -> None:
        assert self._process.stderr
        complaint = self._process.stderr.read().decode(errors="replace").strip()
        status = self._process.wait()
        if "parse timestamp" in complaint:
            raise UsageError(
                complaint, hint="--since takes 10min, 2h, a date and time of the host, or `invocation`"
            )
        if status > 0:
            error = FileGone if "Failed to iterate" in complaint else AgentError
            raise error(f"journalctl on the host: {complaint or 'exit ' + str(status)}")


def resolve_since(since: str) -> str:
    """A fixed moment for journalctl, by this host's clock and zone, so that a resumed reader begins at the
    same one.

    `10min` is that long ago; a time without a zone is the host's; other words are journalctl's own.
    """
    if _DURATION.fullmatch(since):
        ago = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(since))
        return f"@{time.time() - ago:.6f}"
    try:
        return f"@{datetime.fromisoformat(since.replace('Z', '+00:00')).timestamp():.6f}"
    except ValueError:
        return since


def first_of_run(unit: str) -> Optional[str]:
    """The cursor of the first entry of the unit's current or last run; None when it never ran."""
    run = units.show(unit).get("InvocationID")
    if not run:
        with Journalctl(["-n", "1", f"_SYSTEMD_UNIT={unit}"]) as journal:
            run = (journal.first() or {}).get("_SYSTEMD_INVOCATION_ID")
    entry = first_of_invocation(run) if run else None
    return entry["__CURSOR"] if entry else None


def first_of_invocation(run: str) -> Optional[Entry]:
    with Journalctl([f"INVOCATION_ID={run}", "_PID=1", "+", f"_SYSTEMD_INVOCATION_ID={run}"]) as journal:
        return journal.first()
