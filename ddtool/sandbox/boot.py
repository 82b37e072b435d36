"""From a child in new namespaces to systemd: the mounts of a small host, then exec. Runs as PID 1."""

from __future__ import annotations

import os
import socket
import stat
import uuid
from pathlib import Path
from typing import NoReturn

from ddtool.sandbox import cgroups, disk, kernel, oomshim
from ddtool.sandbox.kernel import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
)
from ddtool.sandbox.records import Options

_PLAIN = MS_NOSUID | MS_NODEV | MS_NOEXEC
_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_HIDDEN = ("proc/kmsg", "proc/sysrq-trigger", "proc/kcore", "proc/timer_list")
# What a service inside must not do to this machine by accident. No security boundary: CAP_SYS_ADMIN remains.
_DROPPED_CAPABILITIES = {
    "SYS_MODULE": 16,
    "SYS_RAWIO": 17,
    "SYS_TIME": 25,
    "MAC_OVERRIDE": 32,
    "MAC_ADMIN": 33,
    "SYSLOG": 34,
    "WAKE_ALARM": 35,
    "BLOCK_SUSPEND": 36,
}
_ENVIRONMENT = {
    "container": "ddtool-sandbox",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
}


def become_init(options: Options, console: int) -> NoReturn:
    """Build the mounts, pivot into them and exec systemd with the terminal `console` as its console.

    To be called as the first process of new mount, pid, uts, ipc and network namespaces, in the
    sandbox's cgroups.
    """
    kernel.unshare(kernel.NEWCGROUP)
    kernel.mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = str(disk.root(options))
    kernel.mount(root, root, None, MS_BIND)
    os.chdir(root)  # from here on relative paths are inside, absolute ones on this machine
    for folder in ("proc", "sys", "dev", "run", "tmp", ".old"):
        Path(folder).mkdir(exist_ok=True)
    _mount_proc(disk.scratch(options) / "boot_id")
    _mount_dev(options.shm, os.ttyname(console))
    kernel.mount("tmpfs", "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=256m")
    kernel.mount("sysfs", "sys", "sysfs", _PLAIN | MS_RDONLY)
    _mount_cgroups()
    for source, target in options.binds:
        _bind_read_only(Path(source), Path(target.lstrip("/")))
    _pivot()
    socket.sethostname(options.name)
    for number in _DROPPED_CAPABILITIES.values():
        kernel.drop_capability(number)
    _exec_systemd(console, oom_shim=options.oom_shim)


def _mount_proc(boot_id: Path) -> None:
    kernel.mount("proc", "proc", "proc", _PLAIN)
    # kernel-wide knobs are this machine's: read-only, but for those of the sandbox's own network
    kernel.mount("proc/sys", "proc/sys", None, MS_BIND)
    kernel.mount("proc/sys/net", "proc/sys/net", None, MS_BIND)
    kernel.mount(None, "proc/sys", None, MS_BIND | MS_REMOUNT | MS_RDONLY | _PLAIN)
    boot_id.write_text(f"{uuid.uuid4()}\n")
    boot_id.chmod(0o444)
    kernel.mount(str(boot_id), "proc/sys/kernel/random/boot_id", None, MS_BIND)


def _mount_dev(shm: int, console: str) -> None:
    kernel.mount("tmpfs", "dev", "tmpfs", MS_NOSUID, "mode=755,size=4m")
    for name, (major, minor) in _DEVICES.items():
        os.mknod(f"dev/{name}", stat.S_IFCHR, os.makedev(major, minor))
        Path("dev", name).chmod(0o666)
    for name, target in _DEVICE_LINKS.items():
        Path("dev", name).symlink_to(target)
    for name in ("pts", "shm", "mqueue"):
        Path("dev", name).mkdir()
    kernel.mount(
        "devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"
    )
    kernel.mount("tmpfs", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={shm}")
    kernel.mount("mqueue", "dev/mqueue", "mqueue", _PLAIN)
    Path("dev/console").touch()
    kernel.mount(console, "dev/console", None, MS_BIND)
    for path in _HIDDEN:
        if Path(path).exists():
            kernel.mount("dev/null", path, None, MS_BIND)


def _mount_cgroups() -> None:
    here = cgroups.hierarchies()
    top = Path("sys/fs/cgroup")
    if cgroups.layout(here) == "unified":
        kernel.mount("cgroup2", str(top), "cgroup2", _PLAIN)
        return
    kernel.mount("tmpfs", str(top), "tmpfs", _PLAIN, "mode=755,size=4m")
    for name in here:
        folder = top / ("unified" if name == cgroups.CGROUP2 else name)
        folder.mkdir()
        if name == cgroups.CGROUP2:
            kernel.mount("cgroup2", str(folder), "cgroup2", _PLAIN)
        else:
            controllers = "none,name=systemd,xattr" if name == cgroups.SYSTEMD else name
            kernel.mount("cgroup", str(folder), "cgroup", _PLAIN, controllers)
    kernel.mount(None, str(top), None, MS_REMOUNT | MS_RDONLY | _PLAIN, "mode=755,size=4m")


def _bind_read_only(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    kernel.mount(str(source), str(target), None, MS_BIND)
    kernel.mount(None, str(target), None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def _pivot() -> None:
    kernel.pivot_root(".", ".old")
    os.chdir("/")
    kernel.unmount("/.old")
    Path("/.old").rmdir()


def _exec_systemd(console: int, oom_shim: bool) -> NoReturn:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.dup2(console, descriptor)
    os.closerange(3, 4096)
    os.umask(0o022)
    environment = {**_ENVIRONMENT, **({"LD_PRELOAD": oomshim.PATH_INSIDE} if oom_shim else {})}
    os.execve(  # noqa: S606 - that is the point of it all
        "/lib/systemd/systemd", ["/sbin/init", "--log-target=journal", "--show-status=yes"], environment
    )
