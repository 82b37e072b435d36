"""Removing what a dead sandbox left.

`python -m ddtool.sandbox.cleanup NAME PID STARTED` is the small process beside each supervisor that waits
for its end and cleans up, should it be killed. When both are killed, the next `up` or `down` sweeps.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from ddtool.sandbox import cgroups
from ddtool.sandbox.processes import Process
from ddtool.sandbox.records import load, name_lock, state_root


def names() -> list[str]:
    """Everything in the state folder or in a cgroup of ours, running or left behind."""
    root = state_root()
    folders = {entry.name for entry in root.iterdir() if entry.is_dir()} if root.is_dir() else set()
    return sorted(folders | cgroups.names(cgroups.parent(root)))


def forget(name: str) -> list[Path]:
    """Kill what still runs of a sandbox without a supervisor and remove its cgroups and folder.

    Returns what could not be removed. The caller holds the lock of the name.
    """
    sandbox = load(name)
    if sandbox and sandbox.init:
        sandbox.init.kill()
    left = cgroups.remove(cgroups.parent(state_root()), name)
    folder = state_root() / name
    shutil.rmtree(folder, ignore_errors=True)
    return [*left, *([folder] if folder.exists() else [])]


def sweep() -> None:
    """Forget every sandbox whose supervisor is gone."""
    for name in names():
        with suppress(BlockingIOError), name_lock(name, wait=False):  # locked: somebody is at it
            sandbox = load(name)
            if not (sandbox and sandbox.supervisor.alive()):
                forget(name)


def main() -> None:
    name, pid, started = sys.argv[1:]
    os.chdir("/")  # it lives long, and is to keep no file system busy
    supervisor = Process(int(pid), int(started))
    supervisor.wait()
    with name_lock(name):
        sandbox = load(name)
        if not sandbox or sandbox.supervisor == supervisor:  # else it was brought up anew meanwhile
            forget(name)


if __name__ == "__main__":
    main()
