"""The kernel calls that Python 3.10 lacks. Each raises OSError saying what was tried."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

NEWNS = 0x0002_0000
NEWCGROUP = 0x0200_0000
NEWUTS = 0x0400_0000
NEWIPC = 0x0800_0000
NEWPID = 0x2000_0000
NEWNET = 0x4000_0000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24

_SYSCALLS = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}
SUPPORTED = tuple(_SYSCALLS)

_libc = ctypes.CDLL(None, use_errno=True)


def _syscall(name: str, *args: object) -> int:
    return int(_libc.syscall(_SYSCALLS[platform.machine()][name], *args))


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str = "") -> None:
    """mount(2). `data` is the file system's own option string."""
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    _check(result, f"mount {source} on {target} ({kind}, {data})")


def unmount(target: str) -> None:
    """Detach `target` now, whoever still uses it."""
    _check(_libc.umount2(_bytes(target), _MNT_DETACH), f"unmount {target}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def enter_namespace(fd: int, kind: int) -> None:
    """setns(2) for the calling thread."""
    _check(_libc.setns(fd, kind), f"setns {kind:#x}")


def pivot_root(new: str, old: str) -> None:
    _check(_syscall("pivot_root", _bytes(new), _bytes(old)), f"pivot_root {new} {old}")


def clone(flags: int) -> int:
    """fork(2) into new namespaces: the child's pid in the parent, 0 in the child."""
    return _check(_syscall("clone", ctypes.c_ulong(flags | signal.SIGCHLD), 0, 0, 0, 0), f"clone {flags:#x}")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl PDEATHSIG")


def drop_capability(number: int) -> None:
    """Remove a capability from the bounding set, for this process and all it starts."""
    _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0), f"drop capability {number}")
