"""Runs a transaction to its end or undoes it, and settles one whose executor was killed.

Order of one step: note what is there (`before`), fsync that note, act. A commit line makes the whole permanent.
Anything that has no commit line is undone in reverse: by this process on an error, by the next one after a kill.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
import time
from types import FrameType
from typing import Any, Dict, List, Optional, Tuple

from . import audit, lock
from .errors import AgentError, Locked
from .files import atomic_write
from .registry import Context
from .run import Run, transactions
from .steps import STEPS, Files, Step

KEPT_TRANSACTIONS = 10
RESERVE_BYTES = 1 << 20


class Terminated(BaseException):
    """systemd stops the transient unit: undo like after any error."""


def run(ctx: Context, ident: str) -> int:
    """The transient unit's main program. The exit status is for `systemctl status`; the result is in the folder."""
    this = Run(ctx, ident)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with lock.hold(ctx, owner_of(this)):
            ensure_reserve(ctx)
            settled = settle_dead(ctx, ident)
            this.emit("begin", kind=this.plan["kind"], unit=this.unit, steps=len(this.plan["steps"]))
            result = execute(this)
            if settled:
                result["settled"] = settled
            finish(this, result)
    except Locked as error:
        finish(this, failure(error))
        return 5
    return 0 if result["ok"] else 1


def owner_of(this: Run) -> Dict[str, Any]:
    plan = this.plan
    return {
        "txn": plan["id"],
        "kind": plan["kind"],
        "unit": plan["unit"],
        "who": plan["who"],
        "since_unix": time.time(),
    }


def execute(this: Run) -> Dict[str, Any]:
    """All steps, then the commit; or none of them. Returns the result object."""
    try:
        for number, step in enumerate(steps_of(this)):
            this.emit("step", number=number + 1, title=step.title(this))
            before = step.before(this)
            this.record(step=number, before=before)
            step.do(this, before)
        this.record(commit=True)
    except (Exception, Terminated) as error:  # noqa: BLE001  whatever it is, the host must not stay half changed
        result = failure(error)
        this.emit("failed", message=result["error"]["message"])
        result.update(undo_all(this))
        return {**result, **this.notes}
    finish_steps(this)
    return {"ok": True, **this.notes}


def failure(error: BaseException) -> Dict[str, Any]:
    if isinstance(error, AgentError):
        name, message, hint = error.name, error.message, error.hint
    else:
        name, message, hint = "DdtoolError", str(error) or type(error).__name__, None
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            message = f"no space left on the host ({error.filename or 'writing'})"
            hint = "free some space and run the command again; nothing was changed"
    return {"ok": False, "error": {"class": name, "message": message, "hint": hint}}


def steps_of(this: Run) -> List[Step]:
    return [STEPS[item["step"]](number, item) for number, item in enumerate(this.plan["steps"])]


def begun_steps(this: Run) -> List[Tuple[Step, Dict[str, Any]]]:
    steps = steps_of(this)
    return [(steps[line["step"]], line["before"]) for line in this.records() if "step" in line]


def committed(this: Run) -> bool:
    return any(line.get("commit") for line in this.records())


def undo_all(this: Run) -> Dict[str, Any]:
    """Undo every step that began, last first. One that fails is reported and the others are still undone.

    `mixed`: a set of files could not be put back, so the transaction stays open and `txn.open` stays.
    """
    problems = []
    mixed = False
    (this.ctx.state / "reserve").unlink(missing_ok=True)  # room to write the undo's own notes on a full disk
    for step, before in reversed(begun_steps(this)):
        title = step.undo_title(this)
        if title:
            this.emit("undo", title=title)
        try:
            step.undo(this, before)
        except Exception as error:  # noqa: BLE001  the remaining steps must still be undone
            problems.append(f"{step.title(this)}: {error}")
            mixed = mixed or isinstance(step, Files)
            this.emit("undo-failed", title=step.title(this), message=str(error))
    return {"rolled_back": not problems, "undo_problems": problems, "mixed": mixed}


def finish_steps(this: Run) -> None:
    for step, before in begun_steps(this):
        step.finish(this, before)


def settle_dead(ctx: Context, current: str) -> List[Dict[str, Any]]:
    """Finish or undo what a killed executor left. Only the lock's holder calls this, so nobody else is at it."""
    settled = []
    for folder in sorted(transactions(ctx).iterdir()):
        if folder.name == current or (folder / "result.json").exists():
            continue
        if not (folder / "plan.json").exists():  # killed before it was complete: it never began
            shutil.rmtree(folder)
            continue
        dead = Run(ctx, folder.name)
        if committed(dead):
            finish_steps(dead)
            outcome: Dict[str, Any] = {"ok": True, "settled": "finished"}
        else:
            outcome = {"ok": False, "settled": "undone", **undo_all(dead), **dead.notes}
            outcome["error"] = {"class": "DdtoolError", "message": "its executor was killed", "hint": None}
            if outcome["mixed"]:
                raise AgentError(
                    f"an earlier {dead.plan['kind']} by {dead.plan['who']} is half done and cannot be undone: "
                    + "; ".join(outcome["undo_problems"]),
                    hint="mend what it names (a full or read-only disk?) and run the command again; until then "
                    "no ddtool unit starts",
                )
        finish(dead, outcome)
        settled.append(
            {"txn": folder.name, "kind": dead.plan["kind"], "who": dead.plan["who"], "as": outcome["settled"]}
        )
    return settled


def finish(this: Run, result: Dict[str, Any]) -> None:
    """Write the result for good, forget the plan's secrets, keep the last few folders, tell who watches."""
    result = {"txn": this.plan["id"], "kind": this.plan["kind"], "unit": this.unit, **result}
    audit.append(this.ctx, this.plan, result)
    purged = this.plan["kind"] == "remove" and result["ok"] and not any(this.ctx.state.glob("services/*"))
    if not purged and not result.get("mixed"):
        atomic_write(this.folder / "result.json", json.dumps(result).encode(), mode=0o600)
        atomic_write(this.folder / "plan.json", json.dumps({**this.plan, "steps": []}).encode(), mode=0o600)
        old = sorted(transactions(this.ctx).iterdir())[:-KEPT_TRANSACTIONS]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
    this.emit("done", result=result)
    if purged:
        shutil.rmtree(this.ctx.state)


def ensure_reserve(ctx: Context) -> None:
    """A megabyte to give up when the disk is full. Without room for it the transaction will say so itself."""
    path = ctx.state / "reserve"
    if not path.exists():
        try:
            atomic_write(path, bytes(RESERVE_BYTES), mode=0o600)
        except (OSError, AgentError):
            return


def _terminate(signum: int, frame: Optional[FrameType]) -> None:
    raise Terminated("the transaction was stopped")
