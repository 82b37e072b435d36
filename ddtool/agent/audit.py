"""Who did what on this host, when, and how it ended: one JSON line a transaction."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List

from .registry import Context


def append(ctx: Context, plan: Dict[str, Any], result: Dict[str, Any]) -> None:
    line = {
        "unix": round(time.time(), 3),
        "who": plan["who"],
        "kind": plan["kind"],
        "unit": plan["unit"],
        "why": plan.get("why"),
        "txn": plan["id"],
        "ok": result["ok"],
        "error": (result.get("error") or {}).get("message"),
        "ready_s": (result.get("gate") or {}).get("ready_s"),
    }
    fd = os.open(str(ctx.state / "audit.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


def starts(ctx: Context, unit: str, count: int = 3) -> List[float]:
    """Seconds from start to healthy of this unit's last starts on this host."""
    try:
        lines = (ctx.state / "audit.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    seconds = [
        item["ready_s"] for item in map(json.loads, lines) if item["unit"] == unit and item.get("ready_s")
    ]
    return seconds[-count:]
