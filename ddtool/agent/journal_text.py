"""What a line of SGLang's output says about itself: its rank, its level, a diagnostic's marker.

SGLang logs `[2025-11-29 19:01:02 TP3] text` without a level, and a process that dies prints a bare
traceback, so both are guesses from the text, helped by what the process has printed before. journald's
PRIORITY is 6 for everything on stdout.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Optional

LEVELS = ("debug", "info", "warning", "error", "critical")
PRIORITY_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<where>(?: [A-Z_]+\d+)*)\] ?")
# No more digits than a rank may have: Python refuses to read thousands of them as a number.
_TP = re.compile(r"\bTP(\d{1,9})(?!\d)")
_TORCH_RANK = re.compile(r"\[rank(\d{1,9})\]:")
_TITLE = re.compile(r"sglang::scheduler(?P<where>(?:_[A-Z_]+?\d+)*)\s*$")
_MARKER = re.compile(r"ddtool-diag/1 (\{.*\})")
_MARKER_RANK = re.compile(r'ddtool-diag/1 \{.*"rank": ?(\d{1,9})(?!\d)')

_NAMED_LEVEL = re.compile(
    r"""^\W{0,2}(?:\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\s*)?  # asctime
        (?:-\ )?(?:[\w.]+\ -\ )?[\[(]?                                    # "name - "
        (DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b[\])]?\s*[:\-\s]""",
    re.VERBOSE,
)
_GLOG = re.compile(r"^\[?([IWEF])\d{4} \d\d:\d\d:\d\d\.")
_WARNING_CATEGORY = re.compile(r":\d+: \w*Warning: ")
_OPENING = re.compile(r"^(warning|warn|error|fatal|critical)\b", re.IGNORECASE)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Expired)\b(?::|$)"
)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FATAL = ("Fatal Python error:", "Segmentation fault", "Scheduler hit an exception", "Aborted (core dumped)")

_BY_NAME = {"WARN": "warning", "FATAL": "critical"}
_BY_GLOG = {"I": "info", "W": "warning", "E": "error", "F": "critical"}


def unescaped(text: str) -> str:
    """`text` without the terminal's escape codes: colours, titles, cursor movements."""
    return _ANSI.sub("", text)


def plain(text: str) -> str:
    """`text` as a terminal would leave it: no escape codes, only what follows the last carriage return."""
    if "\x1b" in text:
        text = unescaped(text)
    if "\r" in text:
        text = text.rstrip("\r").rpartition("\r")[2]
    return text


def rank_of_title(title: str) -> Optional[int]:
    """The rank in a scheduler's process title; a scheduler without one is the only rank, 0."""
    match = _TITLE.match(title)
    if match is None:
        return None
    found = re.search(r"_TP(\d+)", match.group("where"))
    return int(found.group(1)) if found else 0


def marker(line: str) -> Optional[Dict[str, Any]]:
    """A diagnostic's marker in a line of the log; None for any other line, and for one that was cut."""
    found = _MARKER.search(line)
    if found is None:
        return None
    try:
        item = json.loads(found.group(1))
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def rank_of_text(line: str) -> Optional[int]:
    prefix = _PREFIX.match(line)
    found = _TP.search(prefix.group("where")) if prefix else _TORCH_RANK.match(line)
    if found is None and "ddtool-diag/1" in line:
        found = _MARKER_RANK.search(line)
    return int(found.group(1)) if found else None


def level_of_text(line: str) -> Optional[str]:
    """The level that one line claims, None when it claims none."""
    torch_rank = _TORCH_RANK.match(line)
    if torch_rank:
        line = line[torch_rank.end() :].lstrip()
    glog = _GLOG.match(line)
    if glog:
        return _BY_GLOG[glog.group(1)]
    prefix = _PREFIX.match(line)
    message = line[prefix.end() :] if prefix else line
    if _TRACEBACK in message or message.startswith(_FATAL):
        return "error"
    named = _NAMED_LEVEL.match(message)
    if named:
        return _BY_NAME.get(named.group(1), named.group(1).lower())
    if "Warning: " in message and _WARNING_CATEGORY.search(message):
        return "warning"
    opening = _OPENING.match(message)
    if opening:
        return _BY_NAME.get(opening.group(1).upper(), opening.group(1).lower())
    if _EXCEPTION.match(message):
        return "error"
    return "info" if prefix else None


def severity(level: Optional[str]) -> int:
    """Position in LEVELS; a line that claims no level counts as info."""
    return LEVELS.index(level or "info")


class Reader:
    """Rank and level of the lines of one unit, line by line, in order.

    A process that has printed its rank keeps it, and the lines of a traceback are errors though only the
    first says so. `memory()` is what it has learned, as JSON: a reader made from it goes on where this one
    stopped.
    """

    def __init__(self, memory: Optional[Dict[str, Any]] = None) -> None:
        memory = memory or {}
        self._run: Optional[str] = memory.get("run")
        self._ranks: Dict[str, Optional[int]] = dict(memory.get("ranks", {}))
        self._tracebacks = set(memory.get("tracebacks", []))

    def memory(self) -> Dict[str, Any]:
        return {"run": self._run, "ranks": dict(self._ranks), "tracebacks": sorted(self._tracebacks)}

    def begin(self, run: Optional[str]) -> None:
        """Lines from now on belong to the run (systemd invocation) `run`: pids mean other processes."""
        if run != self._run:
            self._run = run
            self._ranks.clear()
            self._tracebacks.clear()

    def knows(self, pid: int) -> bool:
        return str(pid) in self._ranks

    def learn(self, pid: int, rank: Optional[int]) -> None:
        self._ranks[str(pid)] = rank

    def rank(self, pid: Optional[int], line: str) -> Optional[int]:
        found = rank_of_text(line)
        if pid is None:
            return found
        if found is not None:
            self._ranks[str(pid)] = found
        return self._ranks.get(str(pid)) if found is None else found

    def level(self, pid: Optional[int], line: str) -> Optional[str]:
        own = level_of_text(line)
        key = str(pid)
        if _TRACEBACK in line:
            self._tracebacks.add(key)
            return "error"
        if key not in self._tracebacks:
            return own
        body = _TORCH_RANK.sub("", line, count=1)
        body = body[1:] if body != line and body.startswith(" ") else body
        if body.startswith((" ", "\t")) or not body or body.startswith(_CHAINED) or _EXCEPTION.match(body):
            return "error"
        # An exception with an unusual class name, or further lines of its message: only a line that says
        # what it is ends the traceback for sure.
        if _PREFIX.match(line) or own is not None:
            self._tracebacks.discard(key)
            return own
        return "error"
