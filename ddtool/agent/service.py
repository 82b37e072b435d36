"""Requests about a service: how it is, and its releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

from . import adopt, clean, client, crashes, evidence, facts, overview, releases, served, txn, unit
from .registry import Context, op


@op("status")
def status(ctx: Context, unit_name: str, venv: Optional[str] = None) -> Dict[str, Any]:
    """Everything that `status` shows, in one request."""
    ident = releases.current_id(ctx, unit_name)
    about = releases.meta(ctx, unit_name, ident) if ident else {}
    venv = about.get("venv") or venv
    state = unit.state_of(unit_name)
    processes = [unit.Process(**item) for item in state.get("processes", ())]
    return {
        "unit": state,
        **adopt.takeover(ctx, unit_name, state),
        "release": {"id": ident, **about} if ident else None,
        "health": health(served.where(ctx, unit_name, state)) if ident else None,
        "diagnostics": overview.state_of(ctx, venv, unit_name, processes) if venv else None,
        "standins": facts.standins(Path(venv)) if venv else [],
        "transactions": txn.open_state(ctx),
        "evidence": [item for item in evidence.listing(ctx) if item["unit"] == unit_name],
        "crashes": crashes.history(ctx, unit_name),
        "gpus": clean.gpus(),
    }


def health(spec: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """`/health` now, of what `served.where` found: `{ok, detail}`."""
    if spec is None:
        return None
    if not client.listening(spec["address"], spec["port"]):
        return {"ok": False, "detail": f"nothing listens on {spec['address']}:{spec['port']}"}
    try:
        answer = client.request(
            spec["address"], spec["port"], "/health", api_key=spec["api_key"], timeout=10.0
        )
    except OSError as error:
        return {"ok": False, "detail": f"/health does not answer: {error}"}
    return {
        "ok": answer.status == 200,
        "detail": f"/health answers {answer.status} in {answer.seconds:.2f} s",
    }


@op("releases")
def release_list(ctx: Context, unit_name: str) -> List[Dict[str, Any]]:
    return releases.listing(ctx, unit_name)
