"""The bad ends of a service, counted: STATE/evidence/UNIT.json.

    {schema, unit,
     ends:  [{invocation, boot, unix, release, result, exit_status, why, fingerprint}],   newest last
     known: {FINGERPRINT: {category, subcode, cause, count, first_unix, last_unix}}}

The host notes that a run ended; what the end was is told by the operator's classifier, once per run. Old ends go,
what is known of a fingerprint stays, so counts and first times outlive the evidence.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from . import disk
from .registry import Context

SCHEMA = "ddtool.crashes/1"
KEPT_ENDS, KEPT_KNOWN = 50, 50
END_FIELDS = ("invocation", "boot", "unix", "release", "result", "exit_status", "why")
VERDICT_FIELDS = ("category", "subcode", "cause")
TEXT = 500  # characters of a field

Json = Dict[str, Any]


def history(ctx: Context, unit: str) -> Json:
    """Never fails on what lies there: a history that cannot be read is begun anew."""
    empty: Json = {"schema": SCHEMA, "unit": unit, "ends": [], "known": {}}
    try:
        found: Json = json.loads(_path(ctx, unit).read_text())
    except (OSError, ValueError):
        return empty
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else empty


def ended(ctx: Context, manifest: Json) -> None:
    """A run ended badly. The gate and `ExecStopPost=` both say so; it counts once."""
    with _changing(ctx, manifest["unit"]) as data:
        old = _end(data, manifest["invocation"])
        new = {field: _short(manifest.get(field)) for field in END_FIELDS}
        new["fingerprint"] = old["fingerprint"] if old else None
        data["ends"] = [end for end in data["ends"] if end is not old] + [new]
        del data["ends"][:-KEPT_ENDS]


def note(ctx: Context, unit: str, invocation: str, verdict: Json) -> Optional[Json]:
    """What the end of a run was: the entry of `known` with its new count. None without a fingerprint or that run."""
    fingerprint = verdict.get("fingerprint")
    with _changing(ctx, unit) as data:
        end = _end(data, invocation)
        if end is None or not fingerprint:
            return None
        known: Json = data["known"]
        entry = known.setdefault(
            fingerprint, {"count": 0, "first_unix": end["unix"], "last_unix": end["unix"]}
        )
        entry.update({field: _short(verdict.get(field)) for field in VERDICT_FIELDS})
        if end["fingerprint"] != fingerprint:
            end["fingerprint"] = fingerprint
            entry["count"] += 1
        entry["first_unix"] = min(entry["first_unix"], end["unix"])
        entry["last_unix"] = max(entry["last_unix"], end["unix"])
        for old in sorted(known, key=lambda name: known[name]["last_unix"])[:-KEPT_KNOWN]:
            del known[old]
        return dict(entry)


def forget(ctx: Context, unit: str) -> None:
    disk.remove(_path(ctx, unit))


def _path(ctx: Context, unit: str) -> Path:
    return ctx.state / "evidence" / f"{unit}.json"


def _end(data: Json, invocation: str) -> Optional[Json]:
    return next((end for end in data["ends"] if end["invocation"] == invocation), None)


def _short(value: Any) -> Any:
    return value[:TEXT] if isinstance(value, str) else value


@contextlib.contextmanager
def _changing(ctx: Context, unit: str) -> Iterator[Json]:
    folder = ctx.state / "evidence"
    disk.make_dirs(folder, 0o700)
    with alone(folder):
        data = history(ctx, unit)
        before = json.dumps(data)
        yield data
        if json.dumps(data) != before:
            disk.atomic_write(_path(ctx, unit), json.dumps(data, indent=1).encode())


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time: the gate and `ExecStopPost=` come for the same run at the same moment."""
    fd = os.open(str(folder), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
