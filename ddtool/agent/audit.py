"""Who did what on this host, when, and how it ended: one JSON line a transaction.

    {unix, who, from, kind, unit, what, why, txn, ok, error, rolled_back, release, ready_s}

`who` is what the operator's ddtool says; `from` is what the host itself saw of that session. A line appears when the
transaction is over. They go with `remove` of the last service, like everything else of ddtool.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import time
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from . import disk
from .errors import UsageError
from .registry import Context, op

FILE = "audit.jsonl"  # bounded by ddtool.agent.tidy
PIECE = 64 << 10
ANCESTORS = 6  # sudo and shells between sshd's session and this agent


def append(ctx: Context, plan: Dict[str, Any], result: Dict[str, Any], release: Optional[str]) -> None:
    """`release`: the unit's current one after the transaction."""
    line = {
        "unix": round(time.time(), 3),
        "who": plan["who"],
        "from": plan.get("from"),
        "kind": plan["kind"],
        "unit": plan["unit"],
        "what": what(plan),
        "why": plan.get("why"),
        "txn": plan["id"],
        "ok": result["ok"],
        "error": (result.get("error") or {}).get("message"),
        "rolled_back": result.get("rolled_back"),
        "release": release,
        "ready_s": (result.get("gate") or {}).get("ready_s"),
    }
    disk.append_line(ctx.state / FILE, json.dumps(line))


def what(plan: Dict[str, Any]) -> str:
    """Which release, or which patches, a plan is about; "" for one whose kind says it all."""
    words = []
    for step in plan["steps"]:
        if step["step"] == "release":
            words.append(f"new release {step['id']}")
        elif step["step"] == "compose":
            words += _patches(step["request"])
        elif step["step"] == "drain":
            words.append(f"drain {step['seconds']:.0f} s")
    if not any(step["step"] == "release" for step in plan["steps"]):
        words += [f"release {step['release']}" for step in plan["steps"] if step["step"] == "gate"]
    return ", ".join(words)


def _patches(request: Dict[str, Any]) -> List[str]:
    words = [f"+{patch['name']}" for patch in request.get("enable", ())]
    words += [f"-{name}" for name in request.get("disable", ())]
    if request["op"] == "restore":
        words.append(f"files to {request.get('to', 'baseline')}")
    if request["op"] == "adopt":
        words.append(f"baseline {request['name']}")
    return words


def origin() -> Dict[str, Optional[str]]:
    """Where this session comes from, as the host sees it: `{address, login}`; no address for one on the host."""
    login = os.environ.get("SUDO_USER")
    if login is None:
        with contextlib.suppress(KeyError):
            login = pwd.getpwuid(os.getuid()).pw_name
    return {"address": _address(os.getpid()), "login": login}


def _address(pid: int) -> Optional[str]:
    """The client's address from the nearest ancestor that sshd told it: sudo takes it out of our own environment."""
    for _ in range(ANCESTORS):
        folder = Path(f"/proc/{pid}")
        try:
            for item in (folder / "environ").read_bytes().split(b"\0"):
                if item.startswith(b"SSH_CONNECTION="):
                    return item.partition(b"=")[2].split()[0].decode(errors="replace")
            pid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return None
    return None


def newest_first(ctx: Context) -> Iterator[Dict[str, Any]]:
    """Read from the file's end, piece by piece, as far as somebody asks; a line that a kill cut short is left out."""
    try:
        file = (ctx.state / FILE).open("rb")
    except FileNotFoundError:
        return
    with file:
        end, cut = file.seek(0, os.SEEK_END), b""
        while end:
            start = max(0, end - PIECE)
            file.seek(start)
            block = file.read(end - start) + cut
            cut, _, whole = block.partition(b"\n") if start else (b"", b"", block)
            for text in reversed(whole.splitlines()):
                with contextlib.suppress(ValueError):
                    yield json.loads(text)
            end = start


def last_of(ctx: Context, unit: str) -> Optional[Dict[str, Any]]:
    return next((item for item in newest_first(ctx) if item["unit"] == unit), None)


def starts(ctx: Context, unit: str, count: int = 3) -> List[float]:
    """Seconds from start to healthy of this unit's last starts on this host, oldest first."""
    seconds = (item["ready_s"] for item in newest_first(ctx) if item["unit"] == unit and item.get("ready_s"))
    return list(islice(seconds, count))[::-1]


@op("audit")
def audit(
    ctx: Context, unit_name: Optional[str] = None, since: Optional[str] = None, last: Optional[int] = None
) -> List[Dict[str, Any]]:
    """Oldest first: of one unit or of all, from a moment of this host's clock on, the `last` so many."""
    from_unix = _moment(since) if since else 0.0
    wanted = (
        item for item in newest_first(ctx) if unit_name in (None, item["unit"]) and item["unix"] >= from_unix
    )
    return list(islice(wanted, last))[::-1]


def _moment(since: str) -> float:
    from .journalctl import resolve_since

    fixed = resolve_since(since)
    if not fixed.startswith("@"):
        raise UsageError(
            f"not a moment: {since}", hint="--since takes 10min, 2h, or a date and time of the host"
        )
    return float(fixed[1:])
