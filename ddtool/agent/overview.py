"""What is enabled in an installation: on disk, and by which ranks of the running unit it is loaded. For `diag status`,
`status` and facts."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List

from . import ledger, objects, proof
from .errors import PreflightError
from .managed import Managed
from .registry import Context, op

Json = Dict[str, Any]


@op("diag.state")
def state(ctx: Context, venv: str, unit: str) -> Json:
    """On disk, expired, lost; and by which ranks of the running unit each patch is loaded, and its code was reached."""
    from . import unit as units

    processes = units.processes(unit) if units.has_systemd() else []
    return state_of(ctx, venv, unit, processes)


def state_of(ctx: Context, venv: str, unit: str, processes: Iterable[proof.Process]) -> Json:
    """`overview` plus `ranks`, and per patch `loaded` and `reached` (ranks); `restart_needed` for the whole."""
    about = overview(ctx, venv)
    ranks = proof.loaded(ctx.run / unit, processes)
    wanted = {(patch["name"], patch["sha"]) for patch in about["patches"] if patch["on_disk"]}
    for row in ranks:
        has = {(item["name"], item["sha"]) for item in row["patches"] or []}
        row["missing"] = sorted(name for name, _ in wanted - has)
        row["stale"] = sorted(name for name, _ in has - wanted)
    for patch in about["patches"]:
        proofs = [(row["rank"], _proofs_of(patch, row)) for row in ranks]
        patch["loaded"] = [rank for rank, items in proofs if items]
        patch["reached"] = [rank for rank, items in proofs if any(item["reached"] for item in items)]
    return {
        **about,
        "unit": unit,
        "ranks": ranks,
        "restart_needed": any(row["missing"] or row["stale"] for row in ranks),
    }


def _proofs_of(patch: Json, row: Json) -> List[Json]:
    """What a rank's proof says of this version of a patch: an item for each of its files."""
    key = (patch["name"], patch["sha"])
    return [item for item in row["patches"] or [] if (item["name"], item["sha"]) == key]


def overview(ctx: Context, venv: str) -> Json:
    """`{site, version, unmanaged, files, patches}` of an installation, from disk alone; all empty without one."""
    try:
        managed = Managed(ctx, venv)
    except PreflightError as error:
        return {"site": None, "version": None, "unmanaged": error.message, "files": [], "patches": []}
    files = [
        {
            "file": name,
            "state": managed.state(name),
            "baseline": entry["baseline"]["id"],
            "patches": [patch["name"] for patch in entry["patches"]],
        }
        for name, entry in sorted(managed.ledger.files.items())
    ]
    return {
        "site": str(managed.install.root),
        "version": managed.install.version,
        "unmanaged": managed.install.unmanaged,
        "files": files,
        "patches": _patches(ctx, managed),
    }


def _patches(ctx: Context, managed: Managed) -> List[Json]:
    """One row per patch in the ledger; `on_disk` when every file of it is as composed."""
    rows: Dict[str, Json] = {}
    for name in sorted(managed.ledger.files):
        file_state = managed.state(name)
        for patch in managed.ledger.patches(name):
            row = rows.setdefault(patch["name"], {**patch, "files": [], "on_disk": True, "lost": False})
            row["files"].append(name)
            row["on_disk"] = row["on_disk"] and file_state == ledger.OURS
            row["lost"] = row["lost"] or file_state == ledger.LOST
            row["expired"] = bool(patch["expires"]) and ledger.day(0) > patch["expires"]
            row["kind"] = _kind(ctx, patch["sha"])
    return [rows[name] for name in sorted(rows)]


def _kind(ctx: Context, sha: str) -> str:
    if not objects.has(ctx, sha):
        return "diagnostic"
    return str(json.loads(objects.get(ctx, sha)).get("kind", "diagnostic"))
