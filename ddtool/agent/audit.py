"""Who did what on this host, when, and how it ended: one JSON line a transaction."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Dict, Iterator, List

from . import disk
from .registry import Context

FILE = "audit.jsonl"


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
    disk.append_line(ctx.state / FILE, json.dumps(line))


def lines(ctx: Context) -> Iterator[Dict[str, Any]]:
    """Oldest first; a line that a kill cut short is left out."""
    try:
        texts = (ctx.state / FILE).read_text().splitlines()
    except FileNotFoundError:
        return
    for text in texts:
        with contextlib.suppress(ValueError):
            yield json.loads(text)


def starts(ctx: Context, unit: str, count: int = 3) -> List[float]:
    """Seconds from start to healthy of this unit's last starts on this host."""
    seconds = [item["ready_s"] for item in lines(ctx) if item["unit"] == unit and item.get("ready_s")]
    return seconds[-count:]
