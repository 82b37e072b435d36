"""A log's message in a sentence of ours: its first words, without prefix and advice."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEAST, MOST = 48, 160  # characters of a message that are worth repeating

# What stands before a message and tells nothing: "[rank3]:", "(Worker_TP1 pid=7) ERROR 03-02 04:12:30 [core.py:70]".
_RANK = r"\[rank\d+\]: ?"
_LOGGED = r"(?:\[[EWIFV]\d{3,4} [\d:.]+ [\w.]+:\d+\] ?)?(?:\[Rank \d+\] ?)?"
TORCH_HEAD = re.compile(rf"^{_RANK}{_LOGGED}")
_HEAD = re.compile(
    rf"(?:{_RANK})?{_LOGGED}"
    r"(?:\(\w+ pid=\d+\) )?(?:(?:ERROR|WARNING|CRITICAL|INFO)[ :][\d: -]*(?:\[[\w.]+:\d+\])? ?)?"
)
_STOP = re.compile(r"(?<=[\w)\]'\"`])[.!] +(?=[A-Z])")  # between two sentences


def gist(text: str) -> str:
    """The first sentence of a message, with the second if the first says little."""
    first, *more = _STOP.split(_HEAD.sub("", text, count=1).strip(), maxsplit=2)
    if more and len(first) < LEAST:
        first = f"{first}, {more[0][0].lower()}{more[0][1:]}"
    short = first.rstrip(" .:;,")
    return short if len(short) <= MOST else short[: MOST - 1].rstrip() + "…"


def one_sentence(said: Iterable[str]) -> str:
    return "; ".join(part.rstrip(".") for part in said) + "."
