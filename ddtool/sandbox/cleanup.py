"""Removing what a dead sandbox left on this machine."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ddtool.sandbox import cgroups
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
