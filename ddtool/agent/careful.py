"""Reading where somebody with fewer rights may write: the proofs and stacks that a service leaves in RUN/UNIT.

A service may run as another user, and then that folder is its own. The agent is root: a link there could show it any
file of the host, a pipe could keep it waiting for ever, and a number in a record could aim its signals.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional

RECORD_BYTES = 256 << 10
MOST_FILES = 2000
_NAME = re.compile(r"(?P<pid>[0-9]{1,10})-(?P<start>[0-9]{1,20})\.(?P<kind>json|stacks|partial|tmp)")


class Left(NamedTuple):
    """A file that a process of the service left. Its name alone tells of which process it is, never what is in it."""

    path: Path
    pid: int
    start: int
    kind: str


def left_in(folder: Path) -> Iterator[Left]:
    """By name, at most MOST_FILES of them; whatever else lies there is passed over."""
    try:
        names = sorted(path.name for path in folder.iterdir())[:MOST_FILES]
    except OSError:
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found:
            yield Left(folder / name, int(found["pid"]), int(found["start"]), found["kind"])


def read(path: Path, most: int) -> bytes:
    """At most `most` bytes of a regular file that has no other name. OSError for a link, a pipe, or a device."""
    fd = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as stream:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise OSError(f"{path} is not a regular file of its own")
        return stream.read(most)


def read_record(path: Path) -> Optional[Dict[str, Any]]:
    """A JSON object; None when it is not there, not one, or too large to be one of ours."""
    try:
        data = json.loads(read(path, RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
