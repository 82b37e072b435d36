"""Lines that are JSON: journal entries, container engines' files, structured loggers, our own records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ddtool.agent.journal_entries import Joiner, Whole, pid_of
from ddtool.crash.lines import clean
from ddtool.crash.model import Line, Source
from ddtool.crash.prefixes import Peeled, peel, stamp_us

_TEXTS = ("message", "msg", "log", "text", "textPayload", "line", "body", "event")
_TRACES = ("exc_info", "exception", "traceback", "stack_trace", "stack", "error", "exc_text")
_STAMPS = ("timestamp", "@timestamp", "time", "ts", "asctime")
_LEVELS = ("level", "levelname", "severity", "log.level", "lvl")
_LEVEL_NAMES = {"warn": "warning", "err": "error", "fatal": "critical"}
_PARTIAL_LIMIT = 4 << 20  # characters of one line that a container engine cut in pieces
_RECORD = "ddtool.record/"
LOGGED_REQUEST = "request."  # SGLang's --log-requests-format json: request.received, request.finished


class Entries:
    """JSON lines one by one, in order: journald and container engines cut long lines, so some must wait. A line
    that was put together has the number of its last piece."""

    def __init__(self) -> None:
        self._joiner = Joiner()
        self._partial: dict[str, str] = {}  # stream → text so far
        self._last = 0

    def lines(self, number: int, raw: bytes) -> list[Line] | None:
        """The lines that `raw` completes, or None if it is no JSON object that holds a message."""
        try:
            entry = json.loads(raw.lstrip(b"\x1e \t").removeprefix(b"data: "))
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict):
            return None
        self._last = number
        try:
            if "MESSAGE" in entry or "__CURSOR" in entry:
                entry["_number"] = number
                return [line for whole in self._joiner.add(entry) for line in _of_whole(whole)]
            if str(entry.get("schema", "")).startswith(_RECORD):
                return list(_of_record(number, entry))
            return self._of_log(number, entry)
        except (TypeError, ValueError, KeyError, OverflowError):
            return None  # looks like a known format and is not: it is read as text

    def rest(self) -> Iterator[Line]:
        """Lines whose last piece never came."""
        for whole in self._joiner.flush():
            yield from _of_whole(whole)
        for text in self._partial.values():
            yield from _of_message(self._last, text, Peeled(""))

    def _of_log(self, number: int, entry: Mapping[str, Any]) -> list[Line] | None:
        text = next((entry[key] for key in _TEXTS if isinstance(entry.get(key), str)), None)
        traces = [entry[key] for key in _TRACES if isinstance(entry.get(key), str)]
        if text is None and not traces:
            return None
        known = Peeled(
            "",
            ident=_name(entry),
            unix_us=next((us for key in _STAMPS if (us := _moment(entry.get(key))) is not None), None),
            level=_level(entry),
        )
        if isinstance(entry.get("log"), str) and entry["log"] == text and "stream" in entry:
            stream = str(entry["stream"])
            text = self._partial.pop(stream, "") + text
            if not text.endswith("\n") and len(text) < _PARTIAL_LIMIT:
                self._partial[stream] = text
                return []
        if isinstance(entry.get("event"), str) and entry["event"].startswith(LOGGED_REQUEST):
            return list(_of_message(number, f"{entry['event']} obj=", known))
        return list(_of_message(number, "\n".join([str(text or ""), *map(str, traces)]), known))


def _of_record(number: int, record: Mapping[str, Any]) -> Iterator[Line]:
    """Lines of one `ddtool.record/1`; a gap is a line of the service manager."""
    source = record.get("source")
    known = Peeled(
        "",
        # A record of a run without systemd (`local-runner`) is the program's own word.
        source=cast(Source, source)
        if source in ("pid1", "kernel")
        else "pid1"
        if "gap" in record
        else "unit",
        unix_us=_int64(record.get("unix_us")),
        pid=_int64(record.get("pid")),
        rank=_int64(record.get("rank")),
        level=record["level"] if isinstance(record.get("level"), str) else None,
    )
    yield from _of_message(number, str(record.get("text") or ""), known)


def _of_whole(whole: Whole) -> Iterator[Line]:
    entry = whole.entry
    ident = str(entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM") or "") or None
    source: Source = "unit"
    if entry.get("_TRANSPORT") == "kernel":
        source = "kernel"
    elif str(entry.get("_PID")) == "1" or entry.get("UNIT") or str(ident).startswith("systemd"):
        source = "pid1"
    stamp = entry.get("__REALTIME_TIMESTAMP") or entry.get("_SOURCE_REALTIME_TIMESTAMP")
    known = Peeled("", source, ident, _int64(int(stamp)) if stamp else None, pid_of(entry))
    yield from _of_message(int(entry["_number"]), whole.message, known)


def _of_message(number: int, message: str | bytes, known: Peeled) -> Iterator[Line]:
    """Several lines if the message has several, all with the number of the input's line."""
    raw = message.encode("utf-8", "replace") if isinstance(message, str) else message
    for part in raw.rstrip(b"\n").split(b"\n"):
        line = peel(clean(part))
        yield Line(
            number=number,
            text=line.text,
            source=known.source or line.source or "unit",
            unix_us=known.unix_us if known.unix_us is not None else line.unix_us,
            pid=line.pid if line.pid is not None else known.pid,
            rank=known.rank if known.rank is not None else line.rank,
            level=line.level or known.level,
            ident=known.ident or line.ident,
        )


def _name(entry: Mapping[str, Any]) -> str | None:
    kubernetes = entry.get("kubernetes")
    if isinstance(kubernetes, Mapping) and isinstance(name := kubernetes.get("container_name"), str):
        return name
    name = entry.get("container_name") or entry.get("container")
    return name if isinstance(name, str) else None


def _level(entry: Mapping[str, Any]) -> str | None:
    """The level that a logger gave, unless it is no more than what collectors write on every line."""
    name = next((entry[key].lower() for key in _LEVELS if isinstance(entry.get(key), str)), None)
    level = _LEVEL_NAMES.get(name, name) if name else None
    return level if level in ("warning", "error", "critical") else None


def _moment(value: Any) -> int | None:
    if isinstance(value, str):
        return stamp_us(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1e9 <= value < 1e19:
        scale = 1_000_000 if value < 1e11 else 1_000 if value < 1e14 else 1 if value < 1e17 else 0.001
        return int(value * scale)
    return None


def _int64(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return value if fits else None
