"""Everything that a plan needs to know about a host, in one request that writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import (
    adopt,
    audit,
    clean,
    client,
    disk,
    foreign,
    inflight,
    install,
    overview,
    record,
    releases,
    served,
    speed,
    txn,
    unit,
)
from .enum_names import enum_names
from .errors import AgentError
from .install import set_of
from .registry import Context, op

SPEC_INFO = "sglang/srt/speculative/spec_info.py"
DISTS = ("sglang", "torch", "triton", "flashinfer-python", "sgl-kernel", "sglang-kernel", "transformers")


@op("facts")
def facts(
    ctx: Context,
    unit_name: str,
    venv: str,
    model: str,
    drafter: Optional[str],
    address: str,
    port: int,
    managed: Optional[Dict[str, Any]] = None,
) -> Dict[str, Any]:
    at, weights = {"address": address, "port": port}, {"model": model, "drafter": drafter}
    service = service_facts(ctx, unit_name, at, weights)
    return {
        "schema": "ddtool.facts/1",
        "host": host(ctx),
        "gpus": clean.gpus(),
        "venv": venv_facts(Path(venv)),
        "install": install_facts(ctx, venv, {**managed, "unit_name": unit_name}) if managed else None,
        "model": model_facts(Path(model)),
        "drafter": model_facts(Path(drafter)) if drafter else None,
        "port": port_facts(address, port, service["unit"]),
        "service": service,
        "releases": releases.listing(ctx, unit_name),
        "diagnostics": overview.overview(ctx, venv),
        "transactions": txn.open_state(ctx),
        "salt": releases.salt(ctx),
    }


def host(ctx: Context) -> Dict[str, Any]:
    shm = shutil.disk_usage("/dev/shm")
    anchor = next(path for path in (ctx.state, *ctx.state.parents) if path.exists())
    return {
        "hostname": socket.gethostname(),
        "os": os_name(),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "glibc": glibc(),
        "cpus": os.cpu_count(),
        "memory_mib": meminfo_mib(),
        "shm_total_mib": shm.total >> 20,
        "shm_free_mib": shm.free >> 20,
        "state_free_mib": shutil.disk_usage(str(anchor)).free >> 20,
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "unix": round(time.time(), 3),
        "systemd": unit.has_systemd(),
        "persistent_journal": Path("/var/log/journal").is_dir(),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def os_name() -> str:
    try:
        rows = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return os.uname().sysname
    return next((row.split("=", 1)[1].strip('"') for row in rows if row.startswith("PRETTY_NAME=")), "Linux")


def glibc() -> str:
    """Its version, "" on a host with another C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
    except (ValueError, OSError):
        return ""


def meminfo_mib() -> int:
    for row in Path("/proc/meminfo").read_text().splitlines():
        if row.startswith("MemTotal:"):
            return int(row.split()[1]) >> 10
    return 0


def install_facts(ctx: Context, venv: str, asked: Dict[str, Any]) -> Dict[str, Any]:
    """`install.look` and, where the environment wanted is there and not the one in force, what it holds: `wanted`."""
    found = install.look(ctx, **asked)
    path = asked["path"]
    other = path and found["incomplete"] is None and os.path.realpath(path) != os.path.realpath(venv)
    wanted = {"venv": venv_facts(Path(path)), "diagnostics": overview.overview(ctx, path)} if other else None
    return {**found, "wanted": wanted}


def venv_facts(venv: Path) -> Dict[str, Any]:
    python = venv / "bin" / "python"
    sites = sorted(venv.glob("lib/python3.*/site-packages"))
    if not python.exists() or not sites:
        return {"path": str(venv), "exists": False}
    site = sites[-1]
    return {
        "path": str(venv),
        "exists": True,
        "python": site.parent.name.replace("python", ""),
        "site": str(site),
        "dists": versions(site),
        "sglang": wheel_facts(venv),
        "algorithms": enum_members(site / SPEC_INFO, "SpeculativeAlgorithm"),
        "standins": standins(venv),
        "free_mib": shutil.disk_usage(str(site)).free >> 20,
        "others_may_write": others_may_write(venv, python, site),
    }


def others_may_write(*paths: Path) -> List[str]:
    """`PATH (uid N, mode M)` of each path, and of each folder above it, that somebody else than root may change: root
    runs what lies there."""
    found = {}
    for path in paths:
        for one in (path, path.resolve(), *path.parents, *path.resolve().parents):
            try:
                about = one.stat()
            except OSError:
                continue
            sticky = about.st_mode & stat.S_ISVTX and one not in (path, path.resolve())
            if about.st_uid != 0 or (about.st_mode & 0o022 and not sticky):
                found[str(one)] = f"{one} (uid {about.st_uid}, mode {about.st_mode & 0o7777:o})"
    return [found[name] for name in sorted(found)]


def versions(site: Path) -> Dict[str, str]:
    """Installed version of each distribution that matters here."""
    found = {}
    for info in site.glob("*.dist-info"):
        name, _, version = info.name[: -len(".dist-info")].partition("-")
        found[name.replace("_", "-").lower()] = version
    return {name: found[name] for name in DISTS if name in found}


def wheel_facts(venv: Path) -> Optional[Dict[str, Any]]:
    """How the installed SGLang compares with its RECORD: `{identity, files, modified, missing, unmanaged}`."""
    try:
        install = record.find(str(venv))
    except AgentError:
        return None
    states = record.verify(install)
    return {
        "identity": wheel_identity(install),
        "files": len(states),
        "modified": [name for name, state in states.items() if state == "changed"],
        "missing": [name for name, state in states.items() if state == "missing"],
        "unmanaged": install.unmanaged,
    }


def wheel_identity(install: record.Install) -> str:
    """Version and RECORD's hash, or the set of packages that ddtool installed: the same one, the same wheel."""
    digest = set_of(install.root)
    if digest:
        return f"{install.version} of the set {digest[:12]}"
    recorded = disk.sha256(json.dumps(dict(install.record), sort_keys=True).encode())
    return f"{install.version} {recorded[:16]}"


def enum_members(path: Path, name: str) -> Optional[List[str]]:
    """`enum_names` of a file; None when it can't be read."""
    try:
        return enum_names(path.read_bytes(), name)
    except OSError:
        return None


def standins(venv: Path) -> List[Dict[str, Any]]:
    """CPU stand-ins of a sandbox host; [] on a machine with its real kernels."""
    path = venv.parent / "cpu-standins" / "STANDINS.json"
    try:
        listed: List[Dict[str, Any]] = json.loads(path.read_text())["standins"]
    except OSError:
        return []
    return listed


def model_facts(path: Path) -> Dict[str, Any]:
    """`config.json`, and whether every file that the weights' index names is there."""
    config = path / "config.json"
    if not config.is_file():
        return {
            "path": str(path),
            "exists": path.exists(),
            "config": None,
            "missing": ["config.json"],
            "bytes": 0,
        }
    weights = sorted(path.glob("*.safetensors"))
    index = path / "model.safetensors.index.json"
    named = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
    missing = sorted(name for name in named if not (path / name).is_file())
    if not weights and not any(path.glob("*.bin")):
        missing.append("*.safetensors")
    return {
        "path": str(path),
        "exists": True,
        "config": json.loads(config.read_text()),
        "missing": missing,
        "bytes": sum(file.stat().st_size for file in weights),
    }


def port_facts(address: str, port: int, state: Dict[str, Any]) -> Dict[str, Any]:
    """Who listens there: most often a process of the unit whose `unit.state_of` this is."""
    if not client.listening(address, port):
        return {"port": port, "free": True}
    owner = clean.port_owner(port, [process["pid"] for process in state.get("processes", ())])
    return {
        "port": port,
        "free": False,
        "pid": owner.pid if owner else None,
        "title": owner.title if owner else None,
    }


def service_facts(
    ctx: Context,
    name: str,
    at: Optional[Dict[str, Any]] = None,
    weights: Optional[Dict[str, Optional[str]]] = None,
) -> Dict[str, Any]:
    """The unit as systemd sees it, the texts of its files, what ddtool deployed under this name, and what an outage
    of it costs: `requests` in flight (None when it does not run), `starts`, and `load` where those do not tell.

    `at` {address, port} and `weights` {model, drafter}: of what is planned, for a unit that is not ddtool's yet.
    """
    state = unit.state_of(name)
    paths = [path for path in [state.get("path"), *state.get("drop_ins", [])] if path]
    deployed = releases.service(ctx, name)
    return {
        "unit": state,
        **foreign.texts(paths),
        **adopt.takeover(ctx, name, state),
        "deployed": deployed or None,
        **cost(ctx, name, state, at, weights),
    }


def cost(
    ctx: Context,
    name: str,
    state: Dict[str, Any],
    at: Optional[Dict[str, Any]],
    weights: Optional[Dict[str, Optional[str]]],
) -> Dict[str, Any]:
    """`{requests, starts, load}` of `service_facts`."""
    starts = audit.starts(ctx, name)
    if not state.get("processes"):
        return {"requests": None, "starts": starts, "load": None}
    spec = served.where(ctx, name, state) or at
    config = releases.meta(ctx, name, releases.current_id(ctx, name) or "").get("config", {})
    runs = {"model": config.get("model-path"), "drafter": config.get("speculative-draft-model-path")}
    known = starts and weights in (None, runs)
    return {
        "requests": inflight.count(spec) if spec else {"unknown": "nothing of ddtool runs under this name"},
        "starts": starts,
        "load": None if known else speed.of_weights((weights or runs).values()),
    }
