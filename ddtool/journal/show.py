"""A record as one line for a person. Pure: what colours and terminals do with it is the caller's business."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import NamedTuple

from ddtool.agent.journal_text import plain as as_left
from ddtool.journal.records import Record

SOURCES = {"pid1": "systemd", "kernel": "kernel"}
STYLES = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "bold red"}
DIAGNOSTIC = "ddtool-diag/1 "

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Line(NamedTuple):
    head: str
    text: str
    style: str | None  # of the text; None for an ordinary line


def plain(text: str) -> str:
    """Remote text as a terminal would leave it, and no more than that: of a progress bar only its last state."""
    return _CONTROL.sub(" ", as_left(text))


def line(record: Record, zone: tzinfo | None = None) -> Line:
    """`11-29 19:01:02.123 TP3     text`. The time is the host's clock in `zone`, the operator's own by default."""
    moment = datetime.fromtimestamp(record.unix_us / 1e6, zone) if record.unix_us else None
    clock = f"{moment:%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}" if moment else " " * 18
    if record.gap:
        return Line(f"{clock} {'-' * 7} ", f"{plain(record.text)} ({record.gap.reason})", "yellow")
    origin = f"TP{record.rank}" if record.rank is not None else SOURCES.get(record.source or "", "")
    style = "magenta" if DIAGNOSTIC in record.text else STYLES.get(record.level or "")
    return Line(f"{clock} {origin:<7} ", plain(record.text), style)
