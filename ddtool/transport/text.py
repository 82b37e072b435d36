"""Text that another machine or program wrote, made safe to show."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x09\x0b-\x1f\x7f-\x9f]"
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # they reorder what is read
)


def printable(text: str) -> str:
    """`text` without escape sequences and control characters; a tab becomes a space, line feeds stay."""
    return _CONTROL.sub("", text.replace("\t", " "))


def last_lines(text: str, count: int) -> str:
    """The last `count` lines of `text` that are not blank, printable."""
    lines = [line.rstrip() for line in printable(text).split("\n") if line.strip()]
    return "\n".join(lines[-count:])
