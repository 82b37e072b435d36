"""The verb `settle`: this host undoes or finishes by itself what a killed executor left. See `safeguard` for when."""

from __future__ import annotations

import json
import time

from . import disk, executor, lock
from .registry import Context
from .run import PROGRESS, is_dead, transactions

WHO = "ddtool on this host"


def settle(ctx: Context) -> int:
    """Undo or finish what a killed executor left, as an ordinary transaction without steps; 0 when there is nothing."""
    if lock.holder(ctx):  # whose own transaction looks dead from here; it settled all others before it began
        return 0
    dead = [folder for folder in sorted(transactions(ctx).glob("*")) if is_dead(folder)]
    if not dead:
        return 0
    about = json.loads((dead[0] / "plan.json").read_text())
    ident = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-settle"
    folder = transactions(ctx) / ident
    disk.make_dirs(folder, 0o700)
    disk.write_new(folder / PROGRESS, b"", 0o600)
    plan = {"id": ident, "kind": "settle", "unit": about["unit"], "who": WHO, "why": None, "steps": []}
    disk.atomic_write(folder / "plan.json", json.dumps(plan).encode())
    return executor.run(ctx, ident)
