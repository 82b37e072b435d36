"""One transaction on disk: its plan, a journal of steps that survives a kill, and progress for whoever is watching."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import disk
from .registry import Context

PROGRESS = "progress.jsonl"
JOURNAL = "journal.jsonl"


def transactions(ctx: Context) -> Path:
    return ctx.state / "txn"


def records(folder: Path) -> List[Dict[str, Any]]:
    """A transaction's journal; a last line cut short by a kill or a power cut never took effect."""
    try:
        text = (folder / JOURNAL).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1]]


def is_dead(folder: Path) -> bool:
    """Begun, and not at its end: while nobody holds the lock for it, its executor was killed."""
    over = (folder / "result.json").exists() or not (folder / "plan.json").exists()
    return not over and bool(records(folder))


class Run:
    """The plan is `{id, kind, unit, who, why, steps: [{step, …}]}`. A step acts after its journal line is on disk."""

    def __init__(self, ctx: Context, ident: str, heard_by: Optional[Run] = None) -> None:
        self.ctx = ctx
        self._heard_by = heard_by
        self.folder = transactions(ctx) / ident
        self.plan: Dict[str, Any] = json.loads((self.folder / "plan.json").read_text())
        self.unit: str = self.plan["unit"]
        self.notes: Dict[str, Any] = {}
        self.mixed = False
        self.interrupted = False  # killed or stopped: it is undone though nothing of it has failed
        self._begun = time.monotonic()
        self._progress = (self.folder / PROGRESS).open("a", buffering=1)

    # What the operator sees

    def emit(self, event: str, **fields: Any) -> None:
        """Add a line to the progress file. A full disk costs the line, not the transaction."""
        if self._heard_by and event != "done":
            self._heard_by.emit(event, **fields)
        line = {"event": event, "elapsed_s": round(time.monotonic() - self._begun, 1), **fields}
        try:
            self._progress.write(json.dumps(line) + "\n")
        except OSError:
            return

    def note(self, **fields: Any) -> None:
        """Add to the result."""
        self.notes.update(fields)

    # What recovery needs

    def record(self, **fields: Any) -> None:
        disk.append_line(self.folder / JOURNAL, json.dumps(fields))

    def records(self) -> List[Dict[str, Any]]:
        return records(self.folder)

    # The gate that systemd sees

    def close_starts(self) -> None:
        """From now on systemd skips every start of a ddtool unit (ConditionPathExists=!…/txn.open)."""
        path = self.ctx.state / "txn.open"
        with disk.naming(path):
            os.close(os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            disk.flush_folder(path.parent)

    def open_starts(self) -> None:
        """Not while a set of this transaction is mixed for good: then nothing starts until somebody mends it.

        Flushed: a power cut that brought the file back, with nothing left to settle, would keep the service down.
        """
        path = self.ctx.state / "txn.open"
        if not self.mixed and path.exists():
            with disk.naming(path):
                disk.remove(path)
                disk.flush_folder(path.parent)
