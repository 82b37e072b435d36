"""Bringing sandboxes up, finding them, taking them down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import ddtool
from ddtool.errors import DdtoolError, NameNotResolved, PreflightError, UsageError
from ddtool.sandbox import cgroups, cleanup, control, preflight, readiness, rootfs
from ddtool.sandbox.records import Options, Sandbox, load, name_lock, state_root

_SSH_CONFIG = """\
Host {name} sandbox:{name}
  HostName {address}
  Port {port}
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
"""


def up(
    name: str,
    *,
    layers: Sequence[Path] = (),
    disk: str = "4g",
    shm: str = "1g",
    memory: str = "6g",
    owner: int | None = None,
    publish: Sequence[int] = (),
    binds: Sequence[tuple[Path, str]] = (),
    timeout: float = 60,
    progress: Callable[[str], None] = lambda message: None,
) -> Sandbox:
    """Boot a sandbox, or find it booted, and wait until ssh answers.

    layers: folders stacked over the root file system, the last on top; only read
    disk, shm, memory: most it may write, keep in /dev/shm, and use, as "64m" or "4g" (memory "0": no limit)
    owner: pid of a process at whose end the sandbox goes too
    publish: ports inside that are to be reachable too, at Sandbox.published
    binds: folders or files of this machine and where they appear inside, read-only

    Raises PreflightError when this machine cannot do it, UsageError for a bad argument or when the name is
    taken by a sandbox with other layers, DdtoolError when it is not ready in `timeout` seconds.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise UsageError(f"{name!r} cannot name a sandbox", hint="up to 31 of a-z, 0-9 and -")
    preflight.check()
    cleanup.sweep()
    with name_lock(name):
        base = rootfs.build(progress)
        lower = [str(base), *(str(layer.resolve()) for layer in layers)]
        sandbox = load(name)
        if not sandbox:
            shim = rootfs.has_oom_shim(base) and cgroups.layout(cgroups.hierarchies()) == "hybrid"
            options = Options(
                name=name,
                state=str(state_root()),
                lower=lower,
                disk=parse_size(disk),
                shm=parse_size(shm),
                memory=parse_size(memory),
                binds=[(str(source.resolve()), target) for source, target in binds],
                publish=list(publish),
                owner=owner,
                oom_shim=shim,
                oom_kill_reported=cgroups.reports_oom_kills(cgroups.hierarchies(), shim),
            )
            return _boot(options, timeout)
        if list(sandbox.lower) != lower:
            why = "it was started with another file system"
            raise UsageError(f"sandbox {name} is up already", why=why, hint=f"ddtool sandbox down {name}")
        if not sandbox.init:
            control.ask(sandbox, "power-on")
        return readiness.wait(name, timeout)


def down(name: str) -> None:
    """Kill the sandbox and remove every trace of it; nothing happens when there is none."""
    preflight.check()
    with name_lock(name):
        _take_down(name)
    cleanup.sweep()


def running() -> list[Sandbox]:
    """Sandboxes that are up, powered or not, by name. Raises PreflightError when not root."""
    root = state_root()
    if not root.exists():
        return []
    if not os.access(root, os.R_OK | os.X_OK):
        why = f"{root} is root's alone"
        raise PreflightError("sandboxes cannot be seen", why=why, hint="run ddtool with sudo")
    found = (load(entry.name) for entry in sorted(root.iterdir()) if entry.is_dir())
    return [sandbox for sandbox in found if sandbox and sandbox.supervisor.alive()]


def find(name: str) -> Sandbox:
    """The sandbox of that name. Raises NameNotResolved when there is none, PreflightError when not root."""
    for sandbox in running():
        if sandbox.name == name:
            return sandbox
    raise NameNotResolved(f"no sandbox named {name} is up", hint=f"ddtool sandbox up {name}")


def parse_size(text: str) -> int:
    """ "64m" in bytes. Raises UsageError."""
    match = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    if not match:
        raise UsageError(f"{text!r} is no size", hint="for example 512m or 4g")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _boot(options: Options, timeout: float) -> Sandbox:
    options.folder.mkdir(mode=0o700)
    try:
        _make_keys(options)
        _start_supervisor(options)
        sandbox = load(options.name)
        assert sandbox
        _write_ssh_files(sandbox)
        return readiness.wait(options.name, timeout)
    except BaseException:
        _take_down(options.name)
        raise


def _make_keys(options: Options) -> None:
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"ddtool-sandbox-{options.name}"]
    for key in ("id_ed25519", "ssh_host_ed25519_key"):
        subprocess.run([*keygen, "-f", str(options.folder / key)], check=True, stdin=subprocess.DEVNULL)


def _start_supervisor(options: Options) -> None:
    """Returns when PID 1 runs. Raises DdtoolError with the supervisor's last words."""
    options_file = options.folder / "options.json"
    options_file.write_text(json.dumps(asdict(options)))
    ready_read, ready_write = os.pipe()
    with (options.folder / "supervisor.log").open("ab") as log, os.fdopen(ready_read) as ready:
        subprocess.run(
            [sys.executable, "-m", "ddtool.sandbox.supervisor", str(options_file), str(ready_write)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[ready_write],
            start_new_session=True,
            cwd=Path(ddtool.__file__).parents[1],  # so that -m finds this package, installed or not
            env={
                "PATH": os.environ["PATH"],
                "DDTOOL_SANDBOX_STATE": options.state,
            },  # and none of our secrets
            check=False,
        )
        os.close(ready_write)
        if ready.readline() != "ready\n":  # the pipe's end: the supervisor has ended
            words = readiness.tail(options.folder / "supervisor.log")
            raise DdtoolError(f"sandbox {options.name} could not start", why=words)


def _write_ssh_files(sandbox: Sandbox) -> None:
    kind, host_key, *_ = (sandbox.state / "ssh_host_ed25519_key.pub").read_text().split()
    sandbox.known_hosts.write_text(f"[{sandbox.address}]:{sandbox.port} {kind} {host_key}\n")
    sandbox.ssh_config.write_text(
        _SSH_CONFIG.format(
            name=sandbox.name,
            address=sandbox.address,
            port=sandbox.port,
            key=sandbox.key,
            known_hosts=sandbox.known_hosts,
        )
    )
    sandbox.ssh_config.chmod(0o600)


def _take_down(name: str) -> None:
    sandbox = load(name)
    if sandbox and sandbox.supervisor.alive():
        try:
            control.ask(sandbox, "down", timeout=5)
        except OSError:
            pass  # it hangs or ends already: the kill below decides
        else:
            sandbox.supervisor.wait(10)
        sandbox.supervisor.kill()
    left = cleanup.forget(name)
    if left:
        raise DdtoolError(f"sandbox {name} is down, but still busy are {', '.join(map(str, left))}")
