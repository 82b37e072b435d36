"""One change at a time on a host: an flock that the kernel frees when its holder dies, with the owner's name inside."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Dict, Iterator, Optional

from . import disk
from .errors import Locked
from .registry import Context


def holder(ctx: Context) -> Optional[Dict[str, Any]]:
    """Who holds the lock now: `{txn, kind, unit, who, since_unix}`; None when it is free. Writes nothing."""
    try:
        fd = os.open(str(ctx.state / "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(fd)
    finally:
        os.close(fd)
    return None


def _owner(fd: int) -> Dict[str, Any]:
    try:
        owner: Dict[str, Any] = json.loads(os.pread(fd, 4096, 0))
    except ValueError:  # taken a moment ago, its owner's name not written yet
        owner = {"txn": "", "kind": "unknown", "unit": "", "who": "unknown", "since_unix": time.time()}
    return owner


def locked_error(owner: Dict[str, Any]) -> Locked:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner["since_unix"]))
    age = max(0, int(time.time() - owner["since_unix"]))
    return Locked(
        f"{owner['who']} holds this host since {since} ({age} s ago): {owner['kind']} {owner['unit']}",
        hint="follow it with `ddtool deploy --attach`, or wait until it ends",
    )


@contextlib.contextmanager
def hold(ctx: Context, owner: Dict[str, Any]) -> Iterator[None]:
    """Hold the lock, or raise Locked. Children do not inherit it, so that a service can't keep it."""
    path = ctx.state / "lock"
    with disk.naming(path):
        fd = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(fd)
        os.ftruncate(fd, 0)
        with disk.naming(path):
            os.pwrite(fd, json.dumps(owner).encode(), 0)
        yield
    finally:
        os.close(fd)


def _take(fd: int) -> None:
    """Several tries: whoever asks for the `holder` shares the lock for an instant, which is no reason to give up."""
    for last in (False, False, False, True):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if last:
                raise locked_error(_owner(fd)) from None
            time.sleep(0.05)
