"""The few primitives that change a disk: durable, atomic, and with errors that name the path.

Order is everything here: bytes are flushed before a rename makes them visible, and the directory is
flushed before anything that depends on the rename happens.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, Tuple

from .errors import AgentError, PreflightError

FULL = (errno.ENOSPC, errno.EDQUOT)
CHUNK = 1 << 18


class DiskFull(AgentError):
    """No space. Whoever raises it has removed what it had begun to write."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an OSError inside into an AgentError that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from error


def explain(error: OSError, path: Path) -> AgentError:
    why = error.strerror or str(error)
    if error.errno in FULL:
        return DiskFull(f"no space left to write {path}", "free some space, then try again")
    if error.errno == errno.EROFS:
        return PreflightError(f"cannot write {path}: the file system is read-only", "mount it writable first")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PreflightError(
            f"cannot write {path}: {why}", "it needs root, or the file is immutable (lsattr)"
        )
    return AgentError(f"{path}: {why}")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(path: Path) -> Optional[str]:
    """sha256 (hex) of a file's bytes; None when there is no such file. OSError for a pipe or a device, which may have
    no end."""
    try:
        # A pipe, too, is opened without waiting for somebody to write into it.
        fd = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        found = hashlib.sha256()
        for chunk in iter(lambda: os.read(fd, CHUNK), b""):  # half the time of a file object, for small files
            found.update(chunk)
    finally:
        os.close(fd)
    return found.hexdigest()


def flush_folder(folder: Path) -> None:
    fd = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot flush a directory
            raise
    finally:
        os.close(fd)


def flush_file(path: Path) -> None:
    fd = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Unlink; nothing to do when it, or its folder, is not there."""
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return


def remove_empty(folder: Path) -> None:
    """Remove a folder unless something lies in it. A link to one is left: somebody put it there."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return
    flush_folder(folder.parent)


def write_new(
    path: Path,
    content: bytes,
    mode: int,
    like: Optional[Path] = None,
    owner: Optional[Tuple[int, int]] = None,
) -> None:
    """Create `path`, which must not exist (nor be a link planted there), with flushed bytes.

    `like`: take owner, mode and extended attributes from this file instead of `mode`, and a later mtime.
    """
    fd = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if owner is not None and owner != (os.geteuid(), os.getegid()):
            os.fchown(fd, *owner)
        if like is None:
            os.fchmod(fd, mode)
        else:
            wanted, found = like.stat(), os.fstat(fd)
            if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
                os.fchown(fd, wanted.st_uid, wanted.st_gid)
            shutil.copystat(like, path)
            set_later(path, like)
        os.fsync(fd)
    finally:
        os.close(fd)


def set_later(path: Path, than: Path) -> None:
    """mtime of `path` = now, but a later whole second than its own and that of `than` (when that exists).

    .pyc files record whole seconds, so moving by less would not be seen.
    """
    latest = max(int(one.stat().st_mtime) for one in (path, than) if one.exists())
    moment = max(int(time.time()), latest + 1)
    os.utime(path, (moment, moment))


def atomic_write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` by a file with these bytes: after any crash it is the old or the new one, whole."""
    pid = os.getpid()
    temp = path.with_name(f".ddtool-{pid}.{_started(pid)}-{path.name}")
    with naming(path):
        remove(temp)
        try:
            write_new(temp, content, mode)
            temp.replace(path)
        except BaseException:  # also when systemd stops the transaction
            remove(temp)
            raise
        flush_folder(path.parent)


def drop_temps(folder: Path) -> None:
    """Remove what `atomic_write` left in a folder when its process was killed."""
    for path in folder.glob(".ddtool-*-*"):
        pid, _, started = path.name.split("-")[1].partition(".")
        if pid.isdigit() and started != _started(int(pid)):
            remove(path)


def _started(pid: int) -> Optional[str]:
    """When the process with this id started; None when there is none. The id alone names another one after a boot."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def append_line(path: Path, text: str) -> None:
    """Add a line and flush it. One that does not fit is taken away again; one that a kill cut short is ended."""
    with naming(path):
        fd = os.open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            whole = size == 0 or os.pread(fd, 1, size - 1) == b"\n"
            data = (b"" if whole else b"\n") + text.encode() + b"\n"
            written = os.write(fd, data)
            if written < len(data):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)


def make_dirs(folder: Path, mode: int = 0o755) -> None:
    """`folder` and its missing parents, each durable; existing ones keep their mode."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        with naming(one):
            one.mkdir(exist_ok=True)
            one.chmod(mode)
            flush_folder(one.parent)


def drop_bytecode(source: Path) -> None:
    """Remove the cached bytecode of a .py file.

    Python trusts a cached .pyc whose recorded mtime (whole seconds) and size equal the source's, so a
    restored file could keep running the patch.
    """
    cache = source.parent / "__pycache__"
    if source.suffix == ".py" and cache.is_dir():
        for path in cache.iterdir():
            if path.name.startswith(source.stem + ".") and path.suffix == ".pyc":
                remove(path)
