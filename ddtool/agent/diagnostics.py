"""Diagnostics on this host: plans for the executor, and what `diag status` and `status` show.

A plan request is `{op: toggle|restore|adopt, …arguments of plan_diag, plan_restore or plan_adopt}`; bytes travel as
base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import baseline, ledger, objects, proof, record
from .baseline import plan_adopt
from .errors import PreflightError, UsageError
from .managed import Managed, Plan
from .registry import Context, op
from .restore import plan_restore
from .toggle import plan_diag

Json = Dict[str, Any]
PLANS: Dict[str, Callable[..., Plan]] = {"toggle": plan_diag, "restore": plan_restore, "adopt": plan_adopt}

__all__ = ["overview", "plan", "plan_adopt", "plan_diag", "plan_restore", "state"]


def plan(ctx: Context, request: Json) -> Plan:
    """The changes that a request means now. Raises UsageError, Drift; changes nothing."""
    args = dict(request)
    make = PLANS.get(args.pop("op", ""))
    if make is None:
        raise UsageError(f"not a diagnostics request: {request.get('op')!r}")
    if args.get("wheel_files"):
        args["wheel_files"] = _decoded(args["wheel_files"])
    return make(ctx, **args)


@op("diag.preview")
def preview(ctx: Context, request: Json) -> Json:
    """What a request would do, and whose processes run from that installation. Writes nothing.

    `digest` goes into the transaction, which refuses when the same request would do something else by then.
    """
    args = {**request, "confirm_unknown": True} if request.get("op") == "toggle" else request
    made = plan(ctx, args)
    install = record.find(request["venv"])
    return {
        "digest": made.digest,
        "nothing_to_do": not made.changes,
        "summary": made.summary,
        "diffs": made.diffs,
        "notes": made.notes,
        "unknown": made.unknown,
        "site": str(install.root),
        "units": proof.units_using(record.site_packages(request["venv"]), request["venv"], ctx.units),
    }


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


@op("baseline.list")
def baseline_list(ctx: Context, venv: str) -> Json:
    return baseline.listing(ctx, venv)


@op("baseline.show")
def baseline_show(
    ctx: Context, venv: str, name: Optional[str] = None, wheel_files: Optional[Dict[str, str]] = None
) -> Json:
    return baseline.show(ctx, venv, name, _decoded(wheel_files or {}))


@op("baseline.wanted")
def baseline_wanted(ctx: Context, venv: str) -> List[str]:
    """Names whose clean bytes the operator's `--wheel FILE` has to bring."""
    return baseline.names_to_fetch(ctx, venv)


def _decoded(files: Dict[str, str]) -> Dict[str, bytes]:
    return {name: base64.b64decode(content) for name, content in files.items()}
