"""Diagnostics on this host: plans for the executor, and what they would do.

A plan request is `{op: toggle|restore|adopt, …arguments of plan_diag, plan_restore or plan_adopt}`; bytes travel as
base64.
"""

from __future__ import annotations

import base64
from typing import Any, Callable, Dict, List, Optional

from . import baseline, proof, record
from .baseline import plan_adopt
from .errors import UsageError
from .managed import Plan
from .registry import Context, op
from .restore import plan_restore
from .toggle import plan_diag

Json = Dict[str, Any]
PLANS: Dict[str, Callable[..., Plan]] = {"toggle": plan_diag, "restore": plan_restore, "adopt": plan_adopt}


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
