"""`samples.jsonl` as passes that count: those whose last attempt was ended and lost no request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from ddtool.bench.passes import Pass as PassId
from ddtool.errors import DdtoolError

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Pass:
    """An ended attempt. samples: in the order of their index, none missing."""

    id: PassId
    begin: Record
    samples: tuple[Record, ...]
    end: Record

    @property
    def unix(self) -> float:
        return float(self.begin.get("unix") or 0.0)


@dataclass(frozen=True)
class Records:
    """passes: in the order they ran. warnings: what was left out, and why."""

    passes: list[Pass]
    warnings: list[str]


@dataclass
class _Attempt:
    begin: Record = field(default_factory=dict)
    samples: dict[int, Record] = field(default_factory=dict)
    end: Record | None = None


def read(lines: Iterable[object], requests: Mapping[str, int] | None = None) -> Records:
    """lines: JSON texts, or objects that were JSON. Lines that are no record are counted and left out.

    requests: how many a pass has, by cell; a pass with fewer is left out too

    Raises DdtoolError when an attempt has one request twice: then no number of the run can be trusted.
    """
    attempts: dict[tuple[PassId, int], _Attempt] = {}
    garbage = 0
    for line in lines:
        parsed = _record(line)
        if parsed is None:
            garbage += 1
            continue
        key, record = parsed
        _add(attempts.setdefault(key, _Attempt()), record, key)
    passes, warnings = _ended(attempts, requests or {})
    if garbage:
        warnings.insert(0, f"{garbage} line(s) of the samples are torn or no record; they were left out")
    return Records(sorted(passes, key=lambda one: (one.unix, one.id)), warnings)


def _record(line: object) -> tuple[tuple[PassId, int], Record] | None:
    """None for what is no record: a torn line, another kind, a field that is missing or of the wrong type."""
    try:
        record = json.loads(line) if isinstance(line, (str, bytes)) else line
        if not isinstance(record, Mapping):
            return None
        kind, key = record["kind"], (PassId.parse(record["pass"]), int(record["attempt"]))
        well = kind in _WELL and _WELL[kind](record)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return (key, record) if well else None


def _is_begin(record: Record) -> bool:
    return record.get("unix") is None or _is_number(record["unix"])


def _is_end(record: Record) -> bool:
    gpu, counted = record.get("gpu") or {}, record.get("metrics") or {}
    told = [*(gpu.get(name) for name in ("memory_mib", "power_w")), *counted.values()]
    known = all(value is None or _is_number(value) for value in told)
    return known and _is_number(record["seconds"]) and record["seconds"] > 0


def _is_sample(record: Record) -> bool:
    """What numbers are made of has to be there, or null where the client may not have learned it."""
    chunks = record["chunks"]
    times = [float(at) for at, _ in chunks]
    counts = [int(tokens) for _, tokens in chunks]
    whole = isinstance(record["index"], int) and isinstance(record["prompt"], str)
    named = record.get("output") is None or isinstance(record["output"], str)
    rising = times == sorted(times) and counts == sorted(counts)
    told = [record.get(name) for name in ("e2e_s", "completion_tokens", "verify_ct")]
    numbers = all(value is None or (_is_number(value) and value >= 0) for value in told)
    drafts = record.get("drafts_histogram") or []
    counted = all(isinstance(rounds, int) and rounds >= 0 for rounds in drafts)
    return whole and named and rising and numbers and counted and float(record["sent_s"]) >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


_WELL = {"begin": _is_begin, "sample": _is_sample, "end": _is_end}


def _add(attempt: _Attempt, record: Record, key: tuple[PassId, int]) -> None:
    if record["kind"] == "begin":
        attempt.begin = record
    elif record["kind"] == "end":
        attempt.end = record
    elif record["index"] in attempt.samples:
        raise DdtoolError(
            f"request {record['index']} of pass {key[0].ident} was recorded twice in attempt {key[1]}",
            why="a sample that counts twice makes every rate wrong",
            hint="run the benchmark again; the file of samples is kept as it is",
        )
    else:
        attempt.samples[record["index"]] = record


def _ended(
    attempts: Mapping[tuple[PassId, int], _Attempt], requests: Mapping[str, int]
) -> tuple[list[Pass], list[str]]:
    """The last ended attempt of each pass, and words about passes that have none, several, or one with gaps."""
    latest: dict[PassId, _Attempt] = {}
    ended: dict[PassId, int] = {}
    for (name, _), attempt in sorted(attempts.items(), key=lambda item: item[0]):
        if attempt.end is not None:
            latest[name] = attempt
            ended[name] = ended.get(name, 0) + 1
    passes, warnings = [], []
    for name in sorted({name for name, _ in attempts} - set(latest)):
        warnings.append(f"pass {name.ident} did not end; it is not counted")
    for name, attempt in latest.items():
        if ended[name] > 1:
            warnings.append(f"pass {name.ident} ended {ended[name]} times; the last is counted")
        if attempt.end is None or not attempt.samples:
            warnings.append(f"pass {name.ident} has no request; it is not counted")
            continue
        missing = max(max(attempt.samples) + 1, requests.get(name.cell, 0)) - len(attempt.samples)
        if missing:
            warnings.append(f"pass {name.ident} lacks {missing} of its requests; it is not counted")
            continue
        samples = tuple(attempt.samples[index] for index in sorted(attempt.samples))
        passes.append(Pass(name, attempt.begin, samples, attempt.end))
    return passes, warnings
