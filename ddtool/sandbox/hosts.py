"""Bringing sandboxes up, finding them, taking them down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import ddtool
from ddtool.errors import DdtoolError, NameNotResolved, PreflightError, UsageError
from ddtool.sandbox import cgroups, cleanup, control, preflight, readiness, rootfs
from ddtool.sandbox.records import Options, Sandbox, load, name_lock, state_root


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
    with name_lock(name) as lock:
        base = rootfs.build(progress)
        lower = [str(base), *(str(layer.resolve()) for layer in layers)]
        sandbox = load(name)
        if sandbox and _power_on(sandbox):
            if list(sandbox.lower) != lower:
                why = "it was started with another file system"
                raise UsageError(f"sandbox {name} is up already", why=why, hint=f"ddtool sandbox down {name}")
            return readiness.wait(name, timeout)
        _take_down(name)
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
        return _boot(options, timeout, lock)


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


def _power_on(sandbox: Sandbox) -> bool:
    """See that its power is on. False when its supervisor is gone or on its way: its owner may have just ended."""
    try:
        control.ask(sandbox, "power-on")
    except (OSError, DdtoolError):
        return False
    return True


def _boot(options: Options, timeout: float, lock: int) -> Sandbox:
    options.folder.mkdir(mode=0o700)
    try:
        _start_supervisor(options, lock)
        return readiness.wait(options.name, timeout)
    except BaseException:
        with suppress(DdtoolError):  # the first error is the one to tell, and the reaper tries again
            _take_down(options.name)
        raise


def _start_supervisor(options: Options, lock: int) -> None:
    """Returns when PID 1 runs. Raises DdtoolError with the supervisor's last words.

    The supervisor shares the name's `lock` until then, so that nobody else begins with that name when we are killed.
    """
    options_file = options.folder / "options.json"
    options_file.write_text(json.dumps(asdict(options)))
    ready_read, ready_write = os.pipe()
    with (options.folder / "supervisor.log").open("ab") as log, os.fdopen(ready_read) as ready:
        try:
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "ddtool.sandbox.supervisor",
                    str(options_file),
                    str(ready_write),
                    str(lock),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[ready_write, lock],
                start_new_session=True,
                cwd=Path(ddtool.__file__).parents[1],  # so that -m finds this package, installed or not
                env={
                    "PATH": os.environ["PATH"],
                    "DDTOOL_SANDBOX_STATE": options.state,
                },  # none of our secrets
                check=False,
            )
        finally:
            os.close(ready_write)
            answer = (
                ready.readline()
            )  # "" at the pipe's end, when the supervisor has ended; also when interrupted
        if answer != "ready\n":
            words = readiness.tail(options.folder / "supervisor.log")
            raise DdtoolError(f"sandbox {options.name} could not start", why=words)


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
