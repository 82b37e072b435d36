"""Requests about transactions: start one in a transient unit, and watch it, now or after a lost link."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from . import audit, disk, lock, releases, safeguard, unit
from .errors import AgentError
from .registry import Context, op
from .run import PROGRESS, is_dead, transactions

KEPT_AGENTS = 3
APPEAR_S = 15.0  # a slow host needs that long to start an executor
QUIET_S = 0.5  # nobody holds the lock, and no line came for so long: it is dead


@op("txn.run")
def run(ctx: Context, plan: Dict[str, Any]) -> Iterator[Optional[Dict[str, Any]]]:
    """Start the plan and stream its progress. The transaction goes on when nobody listens any more."""
    owner = lock.holder(ctx)
    if owner:
        raise lock.locked_error(owner)
    folder = transactions(ctx) / plan["id"]
    plan = {**plan, "from": audit.origin()}
    disk.make_dirs(ctx.state, 0o700)
    try:
        disk.make_dirs(folder, 0o700)
        disk.write_new(folder / PROGRESS, b"", 0o600)
        disk.atomic_write(folder / "plan.json", json.dumps(plan).encode())
        agent = install_agent(ctx)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # Opened before it starts: `remove` may delete the folder before its last lines are read.
    with (folder / PROGRESS).open() as progress:
        launch(ctx, agent, plan)
        yield from _watch(ctx, progress, plan["id"])


@op("txn.follow")
def follow(ctx: Context, txn: Optional[str] = None) -> Iterator[Optional[Dict[str, Any]]]:
    """Progress of a transaction from its beginning: the one that runs now, else the last one."""
    owner = lock.holder(ctx)
    folders = sorted(transactions(ctx).glob("*/" + PROGRESS))
    ident = txn or (owner or {}).get("txn") or (folders[-1].parent.name if folders else None)
    if not ident or not (transactions(ctx) / ident / PROGRESS).exists():
        raise AgentError("there is no transaction to follow on this host")
    with (transactions(ctx) / ident / PROGRESS).open() as progress:
        yield from _watch(ctx, progress, ident)


@op("txn.stop")
def stop(ctx: Context, txn: str) -> bool:
    """Ask a transaction to undo itself, without waiting for it; False when it is over."""
    name = executor_unit(txn)
    if not (unit.has_systemd() and unit.is_active(unit.show(name))):
        return False
    unit.systemctl("stop", "--no-block", unit.service(name))
    return True


def _watch(ctx: Context, progress: Any, ident: str) -> Iterator[Optional[Dict[str, Any]]]:
    """Lines up to `done`; a transaction whose executor has died ends the stream with `died`."""
    quiet_since = time.monotonic()
    partial = ""
    seen_dead = False
    while True:
        partial += progress.readline()
        if partial.endswith("\n"):
            text, partial = partial, ""
            quiet_since, seen_dead = time.monotonic(), False
            try:
                line: Dict[str, Any] = json.loads(text)
            except ValueError:  # cut short by a kill, and another executor's line after it
                continue
            yield line
            if line["event"] == "done":
                return
        elif seen_dead:
            yield {"event": "died", "txn": ident}
            return
        elif time.monotonic() - quiet_since > QUIET_S and not _alive(ctx, ident, quiet_since):
            seen_dead = True  # read once more: its last line may have come in between
        else:
            yield None
            time.sleep(0.1)


def _alive(ctx: Context, ident: str, since: float) -> bool:
    """It holds the lock, or was started and may not have got that far. Without systemd only time tells."""
    owner = lock.holder(ctx)
    if owner is not None and owner["txn"] == ident:
        return True
    if unit.has_systemd():
        return unit.is_active(unit.show(executor_unit(ident)))
    return time.monotonic() - since < APPEAR_S


def executor_unit(ident: str) -> str:
    return f"ddtool-txn-{ident}"


def install_agent(ctx: Context) -> Path:
    """Put this agent where a transient unit can run it: a root-owned 0700 folder, named by its hash."""
    from . import compiled  # zipfile takes its time, and this module is loaded for every look at a host

    data = releases.running_agent().read_bytes()
    folder = ctx.state / "agent"
    path = folder / f"{disk.sha256(data)}.pyz"
    if disk.digest(path) != disk.sha256(data):
        disk.make_dirs(folder, 0o700)
        disk.atomic_write(path, data, mode=0o600)
    fast = path.with_suffix(f".{sys.implementation.cache_tag}.pyz")
    if not fast.exists():
        with contextlib.suppress(
            AgentError
        ):  # it costs time, not the transaction, when there is no room for it
            disk.atomic_write(fast, compiled.with_bytecode(data), mode=0o600)
    whole = [item for item in folder.glob("*.pyz") if item.name.count(".") == 1]
    for old in sorted(whole, key=lambda item: -item.stat().st_mtime)[KEPT_AGENTS:]:
        for one in folder.glob(f"{old.stem}.*"):
            one.unlink()
    return path


def launch(ctx: Context, agent: Path, plan: Dict[str, Any]) -> None:
    """In a transient unit, so that it outlives this session; on a host without systemd, as a detached process.

    After a temporary transaction systemd looks whether its executor was killed, and has it undone.
    """
    ident = plan["id"]
    python = shutil.which("python3") or sys.executable
    command = [
        python,
        "-I",
        str(agent),
        "txn",
        ident,
        "--state",
        str(ctx.state),
        "--run",
        str(ctx.run),
        "--units",
        str(ctx.units),
    ]
    if unit.has_systemd():
        options = [
            "--quiet",
            "--collect",
            f"--unit={executor_unit(ident)}",
            "--description=ddtool transaction",
            "--property=KillMode=mixed",
            "--property=TimeoutStopSec=1h",  # a stop asks for an undo, which may start a service again,
        ]
        if plan.get("temporary"):
            options.append(f"--property=ExecStopPost={shlex.join(safeguard.command(ctx, agent))}")
        done = subprocess.run(
            ["systemd-run", *options, "--", *command],
            capture_output=True,
            text=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise AgentError(f"systemd-run failed: {done.stderr.strip()}")
        return
    with Path(os.devnull).open("r+b") as null:
        subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)


def open_state(ctx: Context) -> Dict[str, Any]:
    """`{lock: owner or null, dead: [{id, kind, unit, who}]}`: what runs now, and what a killed executor left."""
    owner = lock.holder(ctx)
    running = (owner or {}).get("txn")
    dead = []
    for folder in sorted(transactions(ctx).glob("*")):
        if folder.name != running and is_dead(folder):
            plan = json.loads((folder / "plan.json").read_text())
            dead.append({key: plan[key] for key in ("id", "kind", "unit", "who")})
    return {"lock": owner, "dead": dead}
