"""What is known about a run of the service at its end, kept before a restart destroys it: STATE/evidence/INVOCATION/.

Two ways in: `ExecStopPost=` of the unit (any bad end), and the gate (a failure while the service may still be alive).
Capped in size, time and number. Replies are redacted on their way out, and the probe keeps secrets out of the journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

from . import careful, crashes, releases, start_log, unit
from .disk import atomic_write, remove
from .errors import Unhealthy
from .registry import Context

SCHEMA = "ddtool.evidence/1"
MANIFEST = "manifest.json"
GATE, RUNNING = "gate", "running"  # the `result` of a run that systemd did not end
KEPT = 5
STACKS_S = 3.0
STACKS_BYTES, STACKS_MOST = 4 << 20, 64
TAIL_LINES = 15  # shown to the operator at once when there is no traceback
SHOWN_FROM, SHOWN_MOST = 2000, 120

Emit = Callable[..., None]


def after_stop(ctx: Context, name: str) -> None:
    """ExecStopPost: keep evidence of a bad end. systemd passes the result in the environment."""
    result = os.environ.get("SERVICE_RESULT", "")
    # SGLang ends every orderly stop by killing itself, so a stop that somebody asked for reads `signal`.
    asked_for = result == "signal" and bool(
        unit.systemctl("show", unit.service(name), "-p", "Job", "--value").strip("\n0")
    )
    if result != "success" and not asked_for:
        keep(ctx, name, os.environ.get("INVOCATION_ID", ""), result, os.environ.get("EXIT_STATUS", ""))


def of_failure(ctx: Context, name: str, invocation: str, why: str, emit: Emit) -> Dict[str, Any]:
    """The gate failed: stacks if it still lives, then everything. The last words go to the operator at once."""
    state = unit.show(name)
    lives = state.get("ActiveState") in ("active", "activating")
    stacks = dump_stacks(ctx, name, emit) if lives else []
    result = GATE if lives else state.get("Result", "")
    folder = keep(ctx, name, invocation, result, state.get("ExecMainStatus", ""), why)
    lines = stacks or last_words(start_log.text(invocation, SHOWN_FROM))
    emit("tail", lines=lines, evidence=str(folder))
    return {
        "invocation": invocation,
        "result": state.get("Result"),
        "exit_status": int(state.get("ExecMainStatus") or 0),
        "stacks": bool(stacks),
        "folder": str(folder),
    }


def last_words(text: str) -> List[str]:
    """The last traceback of a journal and what follows it, or just its last lines."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    return lines[starts[-1] :][:SHOWN_MOST] if starts else lines[-TAIL_LINES:]


def dump_stacks(ctx: Context, name: str, emit: Emit) -> List[str]:
    """Ask every process that registered for it (the probe noted that) for its stacks: lines, process by process.

    Only the unit's own processes are asked: the signal would end any other.
    """
    running = {(process.pid, process.start): process for process in unit.processes(name)}
    waiting = [item for item in careful.left_in(ctx.run / name) if item.kind == "stacks"]
    asked = [
        (running[item.pid, item.start], item.path) for item in waiting if (item.pid, item.start) in running
    ]
    for process, _ in asked:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGUSR2)
    if asked:
        emit("stacks", processes=[process.title for process, _ in asked])
        time.sleep(STACKS_S)
    lines = []
    for process, path in asked:
        text = _stacks(path).decode(errors="replace").strip()
        lines += [f"{process.title} (pid {process.pid}):", *(text or "it does not react").splitlines()]
    return lines


def _stacks(path: Path) -> bytes:
    try:
        return careful.read(path, STACKS_BYTES)
    except OSError as error:
        return f"not to be had: {error}".encode()


def drop_dead_proofs(ctx: Context, name: str) -> None:
    """Records of processes that are gone would only pile up in /run."""
    for item in careful.left_in(ctx.run / name):
        process = unit.process(item.pid)
        if process is None or process.start != item.start:
            remove(item.path)


def proofs(ctx: Context, name: str) -> List[Dict[str, Any]]:
    """Proof-of-load records of this unit: `{patches, engine, pid, start, stacks}`, dead processes included."""
    found = []
    for item in careful.left_in(ctx.run / name):
        proof = careful.read_record(item.path) if item.kind == "json" else None
        if proof is not None:
            found.append({**proof, "pid": item.pid, "start": item.start})
    return found


def of_running(ctx: Context, name: str, emit: Emit) -> Dict[str, Any]:
    """The service as it is now, hung or not, with its stacks: the manifest. It counts as no bad end."""
    state = unit.show(name)
    if not unit.is_active(state):
        raise Unhealthy(f"{name} does not run, and no crash of it is kept on this host", hint="ddtool status")
    dump_stacks(ctx, name, emit)
    folder = keep(ctx, name, state["InvocationID"], RUNNING, "", folder_name=f"{RUNNING}-{name}")
    return read_manifest(folder / MANIFEST)


def keep(
    ctx: Context,
    name: str,
    invocation: str,
    result: str,
    exit_status: str,
    why: str = "",
    folder_name: str = "",
) -> Path:
    """Keep what there is of a run. `why`: what the gate says about it, for a run that systemd did not end."""
    from . import collect  # the journal's readers and more, which nobody needs who only lists what is kept

    folder = ctx.state / "evidence" / (folder_name or invocation or f"{name}-{int(time.time())}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    manifest: Dict[str, Any] = {
        "schema": SCHEMA,
        "invocation": invocation,
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "unix": round(time.time(), 3),
        "release": releases.current_id(ctx, name),
        "unit": name,
        "result": result,
        "exit_status": exit_status,
        "why": why,
    }
    with crashes.alone(folder):
        if (folder / MANIFEST).exists():  # the gate came first, and knows more than systemd
            manifest["why"] = why or read_manifest(folder / MANIFEST).get("why", "")
        files = _save_proofs(ctx, name, folder)
        for filename in collect.gather(ctx, name, invocation, folder):
            files.append(filename)
            if filename == collect.JOURNAL:  # whatever ends this early, the most telling part can be found
                _write_manifest(folder, {**manifest, "files": files})
        _write_manifest(folder, {**manifest, "files": files})
    _rotate(ctx)
    if result != RUNNING:
        crashes.ended(ctx, manifest)
    return folder


def _write_manifest(folder: Path, manifest: Dict[str, Any]) -> None:
    atomic_write(folder / MANIFEST, json.dumps(manifest, indent=1).encode(), mode=0o600)


def _save_proofs(ctx: Context, name: str, folder: Path) -> List[str]:
    (folder / "proofs.json").write_text(json.dumps(proofs(ctx, name)))
    names = ["proofs.json"]
    for item in careful.left_in(ctx.run / name):
        data = _stacks(item.path) if item.kind == "stacks" else b""
        if data and len(names) <= STACKS_MOST:
            (folder / item.path.name).write_bytes(data)
            names.append(item.path.name)
    return names


def _rotate(ctx: Context) -> None:
    folders = [path for path in (ctx.state / "evidence").iterdir() if path.is_dir()]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


def purge(ctx: Context, name: str) -> None:
    crashes.forget(ctx, name)
    for path in (ctx.state / "evidence").glob(f"*/{MANIFEST}"):
        if read_manifest(path)["unit"] == name:
            shutil.rmtree(path.parent, ignore_errors=True)


def listing(ctx: Context) -> List[Dict[str, Any]]:
    """Manifests of bad ends, newest first, each with its folder's name."""
    paths = (ctx.state / "evidence").glob(f"*/{MANIFEST}")
    ended = [item for item in map(read_manifest, paths) if item["result"] != RUNNING]
    return sorted(ended, key=lambda item: -item["unix"])


def read_manifest(path: Path) -> Dict[str, Any]:
    return {**json.loads(path.read_text()), "folder": path.parent.name}
