"""Wheels on their way into an environment: `STATE/wheels/SHA256`, and `SHA256.part` while one is being sent.

They come in pieces, so that a cut link costs one piece: the operator asks how much is there and goes on from that.
An environment that is complete needs them no more.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import time
from pathlib import Path
from typing import Dict, Iterable, List

from . import disk
from .errors import AgentError, UsageError
from .registry import Context, op

STALE_S = 3 * 86400.0  # of an upload that nobody went on with


def folder(ctx: Context) -> Path:
    return ctx.state / "wheels"


def path(ctx: Context, sha: str) -> Path:
    """Where the wheel of this sha256 lies once it is whole. UsageError for what is no sha256."""
    if not re.match(r"^[0-9a-f]{64}\Z", sha):
        raise UsageError(f"not a sha256: {sha!r}")
    return folder(ctx) / sha


@op("wheels.held")
def held(ctx: Context, shas: List[str]) -> Dict[str, int]:
    """sha256 → bytes that are here, of the wheels asked about; reads only."""
    found = {}
    for sha in shas:
        whole = path(ctx, sha)
        for one in (whole, whole.with_name(sha + ".part")):
            if one.exists():
                found[sha] = one.stat().st_size
                break
    return found


@op("wheels.put")
def put(ctx: Context, sha: str, size: int, offset: int, data: str) -> int:
    """Add a piece (base64) of a wheel of `size` bytes. Returns how many are here: where the next piece begins.

    A piece that does not begin there changes nothing. AgentError when the whole has another sha256: then it is gone.
    """
    whole = path(ctx, sha)
    if whole.exists():
        return size
    disk.make_dirs(ctx.state, 0o700)
    disk.make_dirs(folder(ctx), 0o700)
    part, piece = whole.with_name(sha + ".part"), base64.b64decode(data)
    with disk.naming(part):
        fd = os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # two operators may send the same wheel
            here = os.fstat(fd).st_size
            if offset != here or here + len(piece) > size:
                return here
            _write(fd, piece, part)
            if here + len(piece) < size:
                return here + len(piece)
            os.fsync(fd)
        finally:
            os.close(fd)
    _accept(part, whole, sha)
    return size


def _write(fd: int, piece: bytes, part: Path) -> None:
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:  # the service beside it needs the last free megabytes more than this
        disk.remove(part)
        raise


def _accept(part: Path, whole: Path, sha: str) -> None:
    if disk.digest(part) != sha:
        disk.remove(part)
        raise AgentError(f"a wheel arrived damaged: its sha256 is not {sha}", "run the command again")
    with disk.naming(whole):
        part.replace(whole)
        disk.flush_folder(whole.parent)


def drop(ctx: Context, shas: Iterable[str]) -> None:
    """These wheels, and uploads that were given up long ago."""
    for sha in shas:
        disk.remove(path(ctx, sha))
    if not folder(ctx).is_dir():
        return
    for one in folder(ctx).iterdir():
        if time.time() - one.stat().st_mtime > STALE_S:
            disk.remove(one)
    disk.remove_empty(folder(ctx))


def free_bytes(where: Path) -> int:
    """Free space of the file system that `where` is or will be on."""
    anchor = next(one for one in (where, *where.parents) if one.exists())
    return shutil.disk_usage(str(anchor)).free


def device(where: Path) -> int:
    """Names the file system that `where` is or will be on."""
    anchor = next(one for one in (where, *where.parents) if one.exists())
    return anchor.stat().st_dev
