"""systemd: what a unit is doing, its processes, and starting and stopping it within a deadline."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from .errors import AgentError, PreflightError
from .foreign import masked

PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "FragmentPath", "DropInPaths"),
    *("MainPID", "ExecMainStatus", "NRestarts", "InvocationID", "ControlGroup", "ActiveEnterTimestamp"),
)


class Process(NamedTuple):
    pid: int
    start: int  # clock ticks since boot: with the pid it names one process for good
    title: str


def has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def systemctl(*args: str, timeout: float = 30.0, check: bool = True) -> str:
    if not has_systemd():
        raise PreflightError(
            "this host has no systemd, so it cannot run a service", hint="deploy to a host that boots systemd"
        )
    try:
        done = subprocess.run(
            ["systemctl", *args], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise AgentError(f"systemctl {' '.join(args)} did not return within {timeout:.0f} s") from None
    if check and done.returncode:
        raise AgentError(
            f"systemctl {' '.join(args)}: {done.stderr.strip() or 'exit ' + str(done.returncode)}"
        )
    return done.stdout


def show(unit: str, properties: Sequence[str] = PROPERTIES) -> Dict[str, str]:
    """Its properties as systemd prints them; LoadState is `not-found` for a unit that does not exist."""
    text = systemctl("show", service(unit), "-p", ",".join(properties))
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def service(unit: str) -> str:
    return unit if unit.endswith(".service") else unit + ".service"


def is_active(state: Dict[str, str]) -> bool:
    return state.get("ActiveState") in ("active", "activating", "reloading", "deactivating")


def start(unit: str) -> None:
    systemctl("reset-failed", service(unit), check=False)
    systemctl("start", service(unit), timeout=60.0)


def start_if_skipped(unit: str) -> None:
    """Start what systemd did not (at boot, or after a crash) because `txn.open` was there."""
    state = systemctl("show", service(unit), "-p", "ActiveState,ConditionResult,ConditionTimestampMonotonic")
    never_tried = "ConditionTimestampMonotonic=0\n" in state
    if "ActiveState=inactive" in state and "ConditionResult=no" in state and not never_tried:
        start(unit)


def stop(unit: str, timeout: float) -> None:
    """Stop and wait for the last process; systemd itself kills what ignores its stop timeout.

    SGLang ends its own orderly stop by SIGKILL, which leaves the unit `failed`: that mark is taken off.
    """
    systemctl("stop", service(unit), timeout=timeout + 30.0)
    deadline = time.monotonic() + 10.0
    while processes(unit) and time.monotonic() < deadline:
        time.sleep(0.05)
    systemctl("reset-failed", service(unit), check=False)


def take_down(unit: str, timeout: float) -> None:
    """stop() of what may have ended by itself: it is `failed` then, which it was not before."""
    if is_active(show(unit)):
        stop(unit, timeout)
    else:
        systemctl("reset-failed", service(unit), check=False)


def cgroup_folders(group: str) -> List[Path]:
    """Where the unit's control group is mounted: cgroup2, or the systemd hierarchy of a hybrid host."""
    roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"]
    return [Path(root + group) for root in roots if Path(root + group, "cgroup.procs").exists()]


def processes(unit: str) -> List[Process]:
    """Every live process in the unit's control group, sub-groups included."""
    return processes_in(show(unit).get("ControlGroup", ""))


def processes_in(group: str) -> List[Process]:
    pids: Set[int] = set()
    for folder in cgroup_folders(group) if group and group != "/" else []:
        for procs in folder.rglob("cgroup.procs"):
            try:
                pids.update(int(line) for line in procs.read_text().split())
            except OSError:
                continue
    found = (process(pid) for pid in sorted(pids))
    return [item for item in found if item is not None]


def process(pid: int) -> Optional[Process]:
    """None when the process is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        title = masked(
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return None
    return None if stat[0] in "ZX" else Process(pid, int(stat[19]), title)


def state_of(unit: str) -> Dict[str, Any]:
    """What `status` shows of a unit."""
    if not has_systemd():
        return {"systemd": False}
    properties = show(unit)
    active = processes_in(properties.get("ControlGroup", "")) if is_active(properties) else []
    return {
        "systemd": True,
        "exists": properties.get("LoadState") != "not-found",
        "active": properties.get("ActiveState"),
        "sub": properties.get("SubState"),
        "result": properties.get("Result"),
        "enabled": properties.get("UnitFileState"),
        "path": properties.get("FragmentPath"),
        "drop_ins": properties.get("DropInPaths", "").split(),
        "main_pid": int(properties.get("MainPID") or 0),
        "exit_status": int(properties.get("ExecMainStatus") or 0),
        "restarts": int(properties.get("NRestarts") or 0),
        "invocation": properties.get("InvocationID") or None,
        "since": properties.get("ActiveEnterTimestamp") or None,
        "processes": [item._asdict() for item in active],
    }
