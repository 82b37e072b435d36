"""journald's entries as `journalctl -o json --all` prints them, and the records made from them.

An entry's MESSAGE is a string, null (a field above 4 KiB without --all), a list of bytes (any escape code,
carriage return or byte that is not UTF-8), or a list of those (the field was there more than once). A line
above journald's LineMax comes as several entries, cut between any two bytes.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

SCHEMA = "ddtool.record/1"
SUPPRESSED = "a596d6fe7bfa4994828e72309e95d61e"  # MESSAGE_ID of journald's "Suppressed N messages from UNIT"
UNIT_FAILED = (
    "d9b373ed55a64feb8242e02dbe79a49c"  # of systemd's "Failed with result", its last word about a bad run
)
FIELDS = (
    "MESSAGE",
    "MESSAGE_ID",
    "PRIORITY",
    "UNIT",
    "INVOCATION_ID",
    "OBJECT_SYSTEMD_INVOCATION_ID",
    "_PID",
    "_TRANSPORT",
    "_SYSTEMD_UNIT",
    "_SYSTEMD_INVOCATION_ID",
    "_STREAM_ID",
    "_LINE_BREAK",
)
JOINED_LIMIT = 4 << 20  # a "line" longer than this is given out in pieces

_SERIES = re.compile(r"(?:^|;)s=([0-9a-f]+)")
_SEQ = re.compile(r"(?:^|;)i=([0-9a-f]+)")
_BOOT = re.compile(r"(?:^|;)b=([0-9a-f]+)")

Entry = Dict[str, Any]


def cursor_seq(cursor: str) -> Optional[int]:
    """The sequence number inside a cursor: journalctl prints `__SEQNUM` only since systemd 254."""
    match = _SEQ.search(cursor)
    return int(match.group(1), 16) if match else None


def cursor_series(cursor: str) -> Optional[str]:
    """Which series the sequence number belongs to: a journal that is begun anew begins another."""
    match = _SERIES.search(cursor)
    return match.group(1) if match else None


def cursor_boot(cursor: str) -> Optional[str]:
    match = _BOOT.search(cursor)
    return match.group(1) if match else None


def message_bytes(message: Any) -> bytes:
    if message is None:
        return b""
    if isinstance(message, str):
        return message.encode("utf-8", "surrogatepass")
    if all(isinstance(item, int) for item in message):
        return bytes(message)
    return b"\n".join(message_bytes(item) for item in message)


def seq_of(entry: Entry) -> Optional[int]:
    own = entry.get("__SEQNUM")
    return int(own) if own else cursor_seq(entry["__CURSOR"])


def pid_of(entry: Entry) -> Optional[int]:
    pid = entry.get("_PID")
    return int(pid) if pid else None


def source_of(entry: Entry, unit: str) -> str:
    """`pid1` is systemd's own word about the unit: PID 1, journald, the core dump collector."""
    if entry.get("_TRANSPORT") == "kernel":
        return "kernel"
    return "unit" if entry.get("_SYSTEMD_UNIT") == unit else "pid1"


def invocation_of(entry: Entry, unit: str) -> Optional[str]:
    """The run of the unit that this entry belongs to; None for a kernel line."""
    if entry.get("_SYSTEMD_UNIT") == unit:
        return entry.get("_SYSTEMD_INVOCATION_ID")
    return entry.get("INVOCATION_ID") or entry.get("OBJECT_SYSTEMD_INVOCATION_ID")


class Whole(NamedTuple):
    """One line of output: its last entry, and the bytes of all of them."""

    entry: Entry
    message: bytes


class Joiner:
    """Puts lines that journald split at LineMax together again, per process and stream.

    While a line is incomplete everything behind it waits, so that what has been given out is always a
    prefix of the journal and one cursor says where to go on. A line's place is that of its last entry.
    """

    def __init__(self) -> None:
        self._waiting: List[Whole] = []
        self._open: Dict[Any, Tuple[int, bytes]] = {}  # place in _waiting, text so far
        self._size = 0

    @property
    def pending(self) -> bool:
        return bool(self._open)

    def add(self, entry: Entry) -> List[Whole]:
        """The lines that are whole now, in journal order."""
        key = (entry.get("_BOOT_ID"), entry.get("_PID"), entry.get("_STREAM_ID"))
        place, begun = self._open.pop(key, (-1, b""))
        if begun:
            self._waiting[place] = Whole(self._waiting[place].entry, b"")
        message = begun + message_bytes(entry.get("MESSAGE"))
        self._waiting.append(Whole(entry, message))
        if continues(entry):
            self._open[key] = (len(self._waiting) - 1, message)
            self._size += len(message) - len(begun)
        return self.flush() if not self._open or self._size > JOINED_LIMIT else []

    def flush(self) -> List[Whole]:
        """Everything that waits, incomplete lines as they are."""
        ready, self._waiting = self._waiting, []
        self._open.clear()
        self._size = 0
        return [whole for whole in ready if whole.message or not continues(whole.entry)]


def continues(entry: Entry) -> bool:
    """Whether the next entry of this process and stream is the rest of the same line."""
    return entry.get("_LINE_BREAK") == "line-max"


def record(entry: Entry, unit: str, text: str, rank: Optional[int], level: Optional[str]) -> Dict[str, Any]:
    return {
        "schema": SCHEMA,
        "boot": entry.get("_BOOT_ID"),
        "seq": seq_of(entry),
        "cursor": entry["__CURSOR"],
        "unix_us": int(entry["__REALTIME_TIMESTAMP"]),
        "source": source_of(entry, unit),
        "pid": pid_of(entry),
        "rank": rank,
        "level": level,
        "text": text,
    }


def gap(reason: str, text: str, start: Optional[str], entry: Optional[Entry]) -> Dict[str, Any]:
    """Records are missing from the cursor `start` to `entry`, the first behind them (None: nothing yet)."""
    end = entry["__CURSOR"] if entry else None
    return {
        "schema": SCHEMA,
        "boot": entry.get("_BOOT_ID") if entry else None,
        "seq": seq_of(entry) if entry else None,
        "cursor": end,
        "unix_us": int(entry["__REALTIME_TIMESTAMP"]) if entry else None,
        "source": None,
        "pid": None,
        "rank": None,
        "level": "warning",
        "text": text,
        "gap": {"from": start, "to": end, "reason": reason},
    }
