"""What journald's files still hold: the sequence numbers in their headers (systemd.io/JOURNAL_FILE_FORMAT)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

ROOTS = (Path("/var/log/journal"), Path("/run/log/journal"))
MACHINE_ID = Path("/etc/machine-id")
SYSTEM = "system"  # holds what systemd, the kernel and most services say; a person's processes have user-UID

_MAGIC = b"LPKSHHRH"
_HEADER = struct.Struct("<72x16s72xQQ")  # seqnum_id, tail_entry_seqnum, head_entry_seqnum


class Holdings(NamedTuple):
    """By series (the `s=` of a cursor: numbers of different counts don't compare)."""

    heads: Dict[Tuple[str, str], int]  # the oldest entry of each (series, kind of file)
    tails: Dict[str, int]  # the newest of all


def holdings() -> Holdings:
    """What this host's files hold now; nothing where none can be read."""
    heads: Dict[Tuple[str, str], int] = {}
    tails: Dict[str, int] = {}
    for kind, series, head, tail in _files():
        heads[series, kind] = min(head, heads.get((series, kind), head))
        tails[series] = max(tail, tails.get(series, tail))
    return Holdings(heads, tails)


def _files() -> Iterator[Tuple[str, str, int, int]]:
    machine = MACHINE_ID.read_text().strip() if MACHINE_ID.exists() else "none"
    for root in ROOTS:
        for path in (root / machine).glob("*.journal*"):
            found = header(path)
            if found:
                kind = path.name.partition("@")[0].partition(".")[0]
                yield (kind, *found)


def header(path: Path) -> Optional[Tuple[str, int, int]]:
    """Count, head and tail; None for a file that is empty, gone, or being deleted."""
    try:
        with path.open("rb", buffering=0) as file:
            data = file.read(_HEADER.size)
    except OSError:
        return None
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        return None
    series, tail, head = _HEADER.unpack(data)
    return (series.hex(), head, tail) if head else None
