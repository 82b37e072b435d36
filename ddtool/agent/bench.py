"""What benchmarks left on this host: STATE/bench/RUN/ with `run.json` and the growing `samples.jsonl`.

Samples are only ever appended to, whole line by whole line. What a kill tore stays where it is, ended by a newline, so
that a copy which the operator has up to some byte stays right for ever.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shutil
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from . import disk, releases
from .errors import AgentError, UsageError
from .redact import Redactor
from .registry import Context, op

SAMPLES = "samples.jsonl"
TRACE = "trace.jsonl"
ABOUT = "run.json"
KEPT_RUNS = 20
MOST_BYTES = 1 << 30
PIECE = 8 << 20  # of a file in one reply
RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")

Json = Dict[str, Any]


def folder(ctx: Context, run: str) -> Path:
    if not RUN.fullmatch(run):
        raise UsageError(f"{run!r} is no name of a run")
    return ctx.state / "bench" / run


@op("bench.list")
def listing(ctx: Context) -> List[Json]:
    """Newest first: `{run, about, bytes, unix}`: run.json, the size of the samples, and when they last grew."""
    found = []
    for run in reversed(_runs(ctx)):
        samples = run / SAMPLES
        about = samples.stat() if samples.exists() else run.stat()
        size = about.st_size if samples.exists() else 0
        row = {"run": run.name, "about": releases.read_json(run / ABOUT), "bytes": size}
        found.append({**row, "unix": round(about.st_mtime, 3)})
    return found


@op("bench.fetch")
def fetch(ctx: Context, run: str, offset: int = 0, file: str = SAMPLES) -> Json:
    """The samples, or the trace of a tuning run, from a byte on, at most PIECE of them: `{offset, next, size, data}`.

    `data` is zlib's, in base64. Ask again from `next` until that is `size`. While the run goes on the end may be half
    a line.
    """
    if file not in (SAMPLES, TRACE):
        raise UsageError(f"{file!r} is no file of a run")
    path = folder(ctx, run) / file
    try:
        with path.open("rb") as samples:
            size = os.fstat(samples.fileno()).st_size
            if not 0 <= offset <= size:
                raise UsageError(
                    f"{run} has {size} bytes in {file} on this host, so there is no byte {offset}"
                )
            samples.seek(offset)
            data = samples.read(PIECE)
    except FileNotFoundError as error:
        raise AgentError(f"there is no {file} of {run} on this host") from error
    packed = base64.b64encode(zlib.compress(data, 1)).decode()
    return {"offset": offset, "next": offset + len(data), "size": size, "data": packed}


def make_room(ctx: Context, run: str) -> None:
    """The oldest runs go until KEPT_RUNS of at most MOST_BYTES are left, never `run`. AgentError when that is more."""
    sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in _runs(ctx)}
    for path in _runs(ctx):
        if len(sizes) <= KEPT_RUNS and sum(sizes.values()) <= MOST_BYTES:
            return
        if path.name != run:
            shutil.rmtree(path, ignore_errors=True)
            del sizes[path]
    if sum(sizes.values()) > MOST_BYTES:
        raise AgentError(
            f"{run} has {MOST_BYTES >> 30} GiB of samples on this host, and more are not kept",
            hint="begin a new run for the rest, with fewer requests",
        )


def _runs(ctx: Context) -> List[Path]:
    """Oldest first: their names begin with the time."""
    return sorted(path for path in ctx.state.glob("bench/*") if path.is_dir() and RUN.fullmatch(path.name))


class Samples:
    """A run's file, open for a while. `about` becomes its run.json when there is none yet."""

    def __init__(self, ctx: Context, run: str, about: Json) -> None:
        where = folder(ctx, run)
        self.path = where / SAMPLES
        self._redactor = Redactor(ctx)
        disk.make_dirs(where, 0o700)
        disk.drop_temps(where)
        if not (where / ABOUT).exists():
            disk.atomic_write(where / ABOUT, json.dumps(about).encode())

    def __enter__(self) -> Samples:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with disk.naming(self.path):
            self._fd = os.open(str(self.path), flags, 0o600)
            disk.flush_folder(self.path.parent)
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                os.write(self._fd, b"\n")
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        os.close(self._fd)

    def write(self, line: Json) -> None:
        """One line by one write. A pass's begin and end are on the disk when this returns, with all before them."""
        if line.get("error"):
            line = {**line, "error": self._redactor.clean(line["error"])}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with disk.naming(self.path):
            if os.write(self._fd, data) < len(data):  # not taken back: somebody may have read it already
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if line["kind"] != "sample":
                os.fsync(self._fd)
