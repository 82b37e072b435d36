"""Where sandboxes are kept on this machine, and what is written there about each."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddtool.sandbox.processes import Process


def state_root() -> Path:
    """Folder of all sandboxes, one folder each. Root's alone: it holds their keys."""
    return Path(os.environ.get("DDTOOL_SANDBOX_STATE", "/run/ddtool-sandbox")).resolve()


def cache_root() -> Path:
    """Folder of what is slow to build. Safe to delete when no sandbox is up."""
    return Path(os.environ.get("DDTOOL_CACHE", "/var/cache/ddtool"))


@dataclass(frozen=True)
class Options:
    """What to boot. Sizes are bytes; `lower` are overlay layers, the lowest first."""

    name: str
    state: str
    lower: list[str]
    disk: int
    shm: int
    memory: int
    binds: list[tuple[str, str]]
    publish: list[int]
    owner: int | None
    oom_shim: bool
    oom_kill_reported: bool

    @property
    def folder(self) -> Path:
        return Path(self.state, self.name)


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox, as last written by its supervisor. A reboot or power cycle changes `init`."""

    name: str
    address: str
    port: int  # of sshd, relayed; the login is root or "ubuntu"
    published: Mapping[int, int]  # port inside -> port on `address`
    lower: tuple[str, ...]  # overlay layers, the lowest first
    oom_kill_reported: bool  # whether systemd inside says Result=oom-kill
    supervisor: Process
    init: Process | None  # its PID 1; None while powered off
    state: Path  # folder of this sandbox, 0700

    @property
    def pid(self) -> int:
        """Pid of its PID 1 on this machine, 0 while powered off."""
        return self.init.pid if self.init else 0

    @property
    def key(self) -> Path:
        return self.state / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.state / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: knows the sandbox as NAME and as sandbox:NAME."""
        return self.state / "ssh_config"

    @property
    def console_log(self) -> Path:
        """What PID 1 wrote to its console."""
        return self.state / "console.log"

    def save(self) -> None:
        """Atomically: a reader sees the old record or this one."""
        temporary = self.state / ".record.tmp"
        temporary.write_text(json.dumps({**asdict(self), "state": str(self.state)}))
        temporary.rename(self.state / "record.json")


def load(name: str) -> Sandbox | None:
    """The record of `name`, whether or not it still runs."""
    try:
        raw: dict[str, Any] = json.loads((state_root() / name / "record.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Sandbox(
        name=raw["name"],
        address=raw["address"],
        port=raw["port"],
        published={int(inside): port for inside, port in raw["published"].items()},
        lower=tuple(raw["lower"]),
        oom_kill_reported=raw["oom_kill_reported"],
        supervisor=Process(**raw["supervisor"]),
        init=Process(**raw["init"]) if raw["init"] else None,
        state=Path(raw["state"]),
    )


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[int]:
    """Hold an flock on `path` (made when missing), through the descriptor it gives.

    Without `wait` raises BlockingIOError when it is held.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield descriptor
    finally:
        os.close(descriptor)


def name_lock(name: str, *, wait: bool = True) -> AbstractContextManager[int]:
    """Held while a sandbox of that name is brought up or taken down."""
    return locked(state_root() / f".lock-{name}", wait=wait)
