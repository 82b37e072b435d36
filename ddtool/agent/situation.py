"""All that `explain` tells a service's situation from, in one request that writes nothing."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import audit, disk, facts, inflight, proof, record, releases, served, service, unit
from .errors import AgentError
from .registry import Context, op

Json = Dict[str, Any]

SGLANG = re.compile(r"^sglang::|(^|/)python[0-9.]* (-\S+ )*-m sglang\.launch_server\b")
SYSTEMD = (
    *("LoadState", "LoadError", "NeedDaemonReload", "ActiveEnterTimestampMonotonic"),
    *("ConditionResult", "ConditionTimestampMonotonic"),
)


@op("services")
def services(ctx: Context) -> List[Json]:
    """What ddtool has deployed here, for whoever did not: `{unit, profile, current, previous, active}` each."""
    found = []
    for name in releases.units(ctx):
        deployed = releases.service(ctx, name)
        about = {key: deployed.get(key) for key in ("unit", "profile", "current", "previous")}
        found.append({**about, "active": unit.state_of(name).get("active")})
    return found


@op("situation")
def situation(ctx: Context, unit_name: str, venv: Optional[str] = None) -> Json:
    """`status`'s answer, and beside it what else may be the reason that a service is not as wanted."""
    found = service.status(ctx, unit_name, venv)
    state, release = found["unit"], found["release"]
    spec = served.where(ctx, unit_name, state) if release else None
    known = unit.has_systemd()
    return {
        **found,
        "schema": "ddtool.situation/1",
        "host": facts.host(ctx),
        "systemd": systemd(unit_name) if known else None,
        "unit_sha256": disk.digest(Path(state["path"])) if state.get("path") else None,
        "requests": inflight.count(spec) if spec and state.get("processes") else None,
        "port": facts.port_facts(spec["address"], spec["port"], state) if spec else None,
        "wheel": wheel((release or {}).get("venv")),
        "orphans": orphans(ctx, unit_name) if known else [],
        "txn_open": (ctx.state / "txn.open").exists(),
        "starts": audit.starts(ctx, unit_name),
        "last": audit.last_of(ctx, unit_name),
        "services": releases.units(ctx),
    }


def systemd(name: str) -> Json:
    """`{load, error, reload, skipped, age_s}`: whether the unit can be loaded and its file is the one that systemd
    read, whether a condition kept its last start from happening, and how long it has been active."""
    shown = unit.show(name, SYSTEMD)
    entered = int(shown.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    return {
        "load": shown.get("LoadState"),
        "error": shown.get("LoadError", "").partition(" ")[2].strip('" ') or None,
        "reload": shown.get("NeedDaemonReload") == "yes",
        "skipped": shown.get("ConditionResult") == "no" and shown.get("ConditionTimestampMonotonic") != "0",
        "age_s": round(time.monotonic() - entered, 1) if entered else None,
    }


def wheel(venv: Optional[str]) -> Optional[str]:
    """The installed SGLang as a release notes it; None when that cannot be told."""
    if venv is None:
        return None
    try:
        return facts.wheel_identity(record.find(venv))
    except AgentError:
        return None


def orphans(ctx: Context, name: str) -> List[Json]:
    """Processes of SGLang that no running unit holds: `{pid, start, title, ours}`. They keep the memory of their cards.

    `ours`: left behind by this unit, as its control group or their proof of load says. Others may be somebody's work
    in a container or a shell.
    """

    @lru_cache(maxsize=None)  # noqa: UP033  functools.cache is Python 3.9
    def runs(owner: str) -> bool:  # asked once: most of them are one unit's
        return unit.is_active(unit.show(owner))

    found = []
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        process = unit.process(int(folder.name))
        if process is None or not SGLANG.search(process.title):
            continue
        try:
            owners = proof.UNIT.findall((folder / "cgroup").read_text())
        except OSError:
            continue
        if not owners or not runs(owners[-1]):
            proven = (ctx.run / name / f"{process.pid}-{process.start}.json").exists()
            found.append({**process._asdict(), "ours": owners[-1:] == [name] or proven})
    return found
