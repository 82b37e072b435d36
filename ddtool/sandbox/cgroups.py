"""Where a sandbox's processes are accounted: one cgroup per sandbox in each hierarchy of this machine.

Two kinds of machine are known. *Hybrid*: systemd's v1 hierarchy and v1 controllers beside an empty cgroup2;
the limits work through v1. *Unified*: cgroup2 alone. The sandbox sees the same kind as the machine has.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ddtool.errors import PreflightError

V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "devices")
V2_CONTROLLERS = ("memory", "pids", "cpu", "io")
SYSTEMD = "systemd"  # the name of v1's hierarchy without a controller
CGROUP2 = ""

Hierarchies = Mapping[str, Path]
Layout = Literal["hybrid", "unified"]


def hierarchies(mounts: str | None = None) -> Hierarchies:
    """Mount point of each hierarchy: a v1 controller, SYSTEMD or CGROUP2. `mounts` as in /proc/mounts."""
    found: dict[str, Path] = {}
    text = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    for line in text.splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.setdefault(CGROUP2, Path(where))
        elif kind == "cgroup":
            names = {SYSTEMD if option == "name=systemd" else option for option in options.split(",")}
            for name in names & {SYSTEMD, *V1_CONTROLLERS}:
                found.setdefault(name, Path(where))
    return found


def layout(here: Hierarchies) -> Layout:
    """Raises PreflightError when this machine has no cgroup2, which systemd needs to track its services."""
    if CGROUP2 not in here:
        raise PreflightError(
            "a sandbox needs cgroup2",
            why="/proc/mounts lists no cgroup2 hierarchy",
            hint="mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified",
        )
    return "hybrid" if SYSTEMD in here else "unified"


def reports_oom_kills(here: Hierarchies, shim: bool) -> bool:
    """Whether systemd inside can say Result=oom-kill: memory is in cgroup2, or in v1 with the shim there."""
    if layout(here) == "hybrid":
        return shim and "memory" in here
    return "memory" in (here[CGROUP2] / "cgroup.controllers").read_text().split()


def parent(state: Path) -> str:
    """Name of the cgroup that holds all sandboxes of one state folder: two state folders never meet."""
    return "ddtool-sandbox-" + hashlib.sha256(os.fsencode(state)).hexdigest()[:8]


def names(group: str) -> set[str]:
    """Sandboxes that have a cgroup under parent `group`."""
    tops = [where / group for where in hierarchies().values()]
    return {entry.name for top in tops if top.is_dir() for entry in top.iterdir() if entry.is_dir()}


def create(group: str, name: str, memory: int) -> list[Path]:
    """Make the sandbox's cgroups, limited to `memory` bytes (0: not limited), and return them."""
    made: dict[str, Path] = {}
    for hierarchy, where in hierarchies().items():
        made[hierarchy] = where / group / name
        made[hierarchy].mkdir(parents=True, exist_ok=True)
    if "devices" in made:
        (made["devices"] / "devices.deny").write_text("b *:* rwm")  # no way to this machine's disks
    if layout(made) == "unified":
        top = made[CGROUP2].parent
        _delegate(top.parent)
        _delegate(top)
    if memory and "memory" in made:
        (made["memory"] / "memory.limit_in_bytes").write_text(str(memory))
    elif memory and (made[CGROUP2] / "memory.max").exists():
        (made[CGROUP2] / "memory.max").write_text(str(memory))
    return list(made.values())


def _delegate(cgroup: Path) -> None:
    for controller in V2_CONTROLLERS:
        with suppress(OSError):  # not here, or not ours to give: that limit then does nothing inside
            (cgroup / "cgroup.subtree_control").write_text("+" + controller)


def move(cgroups: Iterable[Path], pid: int) -> None:
    for cgroup in cgroups:
        (cgroup / "cgroup.procs").write_text(str(pid))


def remove(group: str, name: str, timeout: float = 10.0) -> list[Path]:
    """Remove the cgroups as the killed processes are reaped. Returns those still busy at `timeout`."""
    end = time.monotonic() + timeout
    left = []
    for where in hierarchies().values():
        top = where / group / name
        while top.is_dir() and not _remove_tree(top) and time.monotonic() < end:
            time.sleep(0.02)
        if top.is_dir():
            left.append(top)
        with suppress(OSError):  # other sandboxes are in it
            (where / group).rmdir()
    return left


def _remove_tree(top: Path) -> bool:
    removed = True
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            removed = False
    return removed
