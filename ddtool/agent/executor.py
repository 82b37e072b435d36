"""Runs a transaction to its end or undoes it, and settles one whose executor was killed.

Order of one step: note what is there (`before`), fsync that note, act. A commit line makes the whole permanent.
Anything that has no commit line is undone in reverse: by this process on an error, by the next one after a kill.
A temporary transaction (`temporary` in its plan) is never committed: undoing it is how it ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import audit, disk, lock, releases, tidy
from .adopt_steps import ADOPT_STEPS
from .bench_steps import BENCH_STEPS
from .disk import atomic_write
from .errors import AgentError, Locked
from .experiment_steps import EXPERIMENT_STEPS
from .install_steps import INSTALL_STEPS
from .registry import Context
from .run import Run, is_dead, records, transactions
from .service_steps import SERVICE_STEPS
from .steps import STEPS, Files, Step

KEPT_TRANSACTIONS = 10
RESERVE_BYTES = 1 << 20
WAITING_S = 60.0  # a plan that was written and not begun so long ago has no executor on its way


class Terminated(BaseException):
    """systemd stops the transient unit: undo like after any error."""


def run(ctx: Context, ident: str) -> int:
    """The transient unit's main program. The exit status is for `systemctl status`; the result is in the folder."""
    this = Run(ctx, ident)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with lock.hold(ctx, owner_of(this)):
            result = begin(this)
            (purge if leaves_nothing(this, result) else finish)(this, result)
    except AgentError as error:  # locked, or no room for the owner's name: nothing has begun
        finish(this, failure(error))
        return 5 if isinstance(error, Locked) else 1
    return 0 if result["ok"] else 1


def begin(this: Run) -> Dict[str, Any]:
    """With the lock held: first settle what others left, then act. Only a transaction that has begun can be dead."""
    try:
        drop_temps(this.ctx)
        ensure_reserve(this.ctx)
        settled = settle_dead(this)
        this.open_starts()  # nothing is half done now, whatever a crash of the host lost
        this.record(begin=True)
    except (Exception, Terminated) as error:  # noqa: BLE001  nothing of this transaction has happened yet
        return failure(error)
    this.emit("begin", kind=this.plan["kind"], unit=this.unit, steps=len(this.plan["steps"]))
    result = execute(this)
    return {**result, "settled": settled} if settled else result


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
    temporary = this.plan.get("temporary", False)
    try:
        for number, step in enumerate(steps_of(this)):
            this.emit("step", number=number + 1, title=step.title(this))
            before = step.before(this)
            this.record(step=number, before=before)
            step.do(this, before)
        if not temporary:
            this.record(commit=True)
    except (Exception, Terminated) as error:  # noqa: BLE001  whatever it is, the host must not stay half changed
        if not committed(this):  # SIGTERM may come between the commit and the next line
            result = failure(error)
            this.emit("failed", message=result["error"]["message"])
            this.interrupted = isinstance(error, Terminated)
            if not this.interrupted:
                with suppress(OSError, AgentError):  # on a full disk a kill from here on counts as the cause
                    this.record(failed=result["error"])
            result.update(undo_all(this))
            return {**result, **this.notes}
    if temporary:
        return put_back(this)
    try:
        finish_steps(this)
    except (Exception, Terminated) as error:  # noqa: BLE001  it is committed: the next transaction tidies up
        this.note(unfinished=failure(error)["error"]["message"])
    return {"ok": True, **this.notes}


def put_back(this: Run) -> Dict[str, Any]:
    """The end of a temporary transaction: ok when the host is as it was."""
    undone = undo_all(this)
    result: Dict[str, Any] = {"ok": undone["rolled_back"], **undone, **this.notes}
    if not result["ok"]:
        message = f"{this.plan['kind']} is over, but the host is not as it was"
        result["error"] = {"class": "DdtoolError", "message": message, "hint": "ddtool status"}
    return result


def failure(error: BaseException) -> Dict[str, Any]:
    if isinstance(error, OSError):
        error = disk.explain(error, Path(str(error.filename or "a file")))
    if isinstance(error, AgentError):
        name, message, hint = error.name, error.message, error.hint
    elif isinstance(error, Terminated):
        name, message, hint = "DdtoolError", str(error), None
    else:
        name, message, hint = "DdtoolError", f"{type(error).__name__}: {error}", None
    return {"ok": False, "error": {"class": name, "message": message, "hint": hint}}


def steps_of(this: Run) -> List[Step]:
    kinds = {**STEPS, **SERVICE_STEPS, **EXPERIMENT_STEPS, **ADOPT_STEPS, **INSTALL_STEPS, **BENCH_STEPS}
    return [kinds[item["step"]](number, item) for number, item in enumerate(this.plan["steps"])]


def begun_steps(this: Run) -> List[Tuple[Step, Dict[str, Any]]]:
    steps = steps_of(this)
    return [(steps[line["step"]], line["before"]) for line in this.records() if "step" in line]


def committed(this: Run) -> bool:
    return any(line.get("commit") for line in this.records())


def failed_with(this: Run) -> Optional[Dict[str, Any]]:
    """The error that it was being undone for; None where nothing had failed."""
    return next((line["failed"] for line in this.records() if "failed" in line), None)


def undo_all(this: Run) -> Dict[str, Any]:
    """Undo every step that began, last first. One that fails is reported and the others are still undone.

    `mixed`: a set of files could not be put back, so the transaction stays open and `txn.open` stays.
    """
    with not_stopped():
        return _undo_all(this)


def _undo_all(this: Run) -> Dict[str, Any]:
    problems = []
    (this.ctx.state / "reserve").unlink(missing_ok=True)  # room to write the undo's own notes on a full disk
    for step, before in reversed(begun_steps(this)):
        title = step.undo_title(this)
        if title:
            this.emit("undo", title=title)
        try:
            step.undo(this, before)
        except Exception as error:  # noqa: BLE001  the remaining steps must still be undone
            problems.append(f"{step.title(this)}: {error}")
            this.mixed = this.mixed or isinstance(step, Files)
            this.emit("undo-failed", title=step.title(this), message=str(error))
    return {"rolled_back": not problems, "undo_problems": problems, "mixed": this.mixed}


@contextmanager
def not_stopped() -> Iterator[None]:
    """A stop asks for an undo; while that runs there is nothing more to ask for."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def finish_steps(this: Run) -> None:
    for step, before in begun_steps(this):
        step.finish(this, before)


def settle_dead(this: Run) -> List[Dict[str, Any]]:
    """Finish or undo what a killed executor left. Only the lock's holder calls this, so nobody else is at it."""
    settled = []
    for folder in sorted(transactions(this.ctx).iterdir()):
        if folder == this.folder or (folder / "result.json").exists():
            continue
        if not is_dead(folder):
            if records(folder) or time.time() - folder.stat().st_mtime > WAITING_S:
                shutil.rmtree(folder)  # killed before it began, or after its plan was over and done with
            continue
        dead = Run(this.ctx, folder.name, heard_by=this)  # undoing may start a service, which takes its time
        failed = failed_with(dead)
        dead.interrupted = failed is None
        if committed(dead):
            finish_steps(dead)
            outcome: Dict[str, Any] = {"ok": True, "settled": "finished"}
        else:
            outcome = {"ok": False, "settled": "undone", **undo_all(dead), **dead.notes}
            killed = {"class": "DdtoolError", "message": "its executor was killed", "hint": None}
            outcome["error"] = failed or killed
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
    """Forget the plan and its secrets, write the result, tell who watches. What is not over yet stays open."""
    result = {"txn": this.plan["id"], "kind": this.plan["kind"], "unit": this.unit, **result}
    try:
        if not this.mixed and "unfinished" not in result:
            disk.remove(this.folder / "plan.json")  # first: on a full disk this makes the room for the rest
            atomic_write(this.folder / "result.json", json.dumps(result).encode())
        audit.append(this.ctx, this.plan, result, releases.current_id(this.ctx, this.unit))
    except AgentError as error:
        result["unrecorded"] = error.message
    this.emit("done", result=result)
    over = [
        folder for folder in sorted(transactions(this.ctx).iterdir()) if (folder / "result.json").exists()
    ]
    for folder in over[:-KEPT_TRANSACTIONS]:
        shutil.rmtree(folder, ignore_errors=True)
    if not this.mixed and "unfinished" not in result:
        tidy.state(this.ctx)


def leaves_nothing(this: Run, result: Dict[str, Any]) -> bool:
    """The last service was removed, now or by a killed transaction that has just been finished."""
    kinds = [item["kind"] for item in result.get("settled", []) if item["as"] == "finished"]
    return (
        result["ok"]
        and "remove" in [this.plan["kind"], *kinds]
        and not any(this.ctx.state.glob("services/*"))
    )


def purge(this: Run, result: Dict[str, Any]) -> None:
    """Everything of ddtool goes. The plan and the journal go last: after a kill the next command purges on."""
    this.emit("done", result={"txn": this.plan["id"], "kind": this.plan["kind"], "unit": this.unit, **result})
    for path in this.ctx.state.iterdir():
        if path.name == "lock":
            continue
        for item in [path] if path != transactions(this.ctx) else path.iterdir():
            if item.is_dir() and item != this.folder:
                shutil.rmtree(item)
            elif item != this.folder:
                item.unlink()
    for folder in (transactions(this.ctx), this.ctx.state):
        disk.flush_folder(folder)  # else a power cut might bring back what no plan is left to remove
    shutil.rmtree(this.ctx.state)
    disk.flush_folder(this.ctx.state.parent)


def drop_temps(ctx: Context) -> None:
    """What killed processes had begun to write. Folders of transactions go as a whole, with theirs."""
    for folder in (ctx.state, ctx.state / "agent", ctx.state / "environments"):
        disk.drop_temps(folder)


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
