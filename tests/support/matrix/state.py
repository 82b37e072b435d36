"""What a host is, as far as ddtool may change it: comparable before and after, and what must never be lost."""

from __future__ import annotations

import json
import re
from typing import Any

from ddtool.sandbox import Sandbox, exec_inside

GATE, SAFEGUARDS = "ddtool-gate.conf", ("ddtool-settle.service", "ddtool-settle.conf")
NOT_LOST = ("releases", "baselines", "objects")
STATE = "/var/lib/ddtool"
WITNESS = "/var/log/witness"

# Release numbers are taken out, since they only grow; dates of the ledger and of records, since they are now; and where
# a release holds a secret, its digest, since that is salted anew after a `remove`.
LOOK = r"""
import glob, hashlib, json, os, re, subprocess, sys
unit, digests = sys.argv[1], sys.argv[2] == "digests"
STATE, UNITS = "/var/lib/ddtool", "/etc/systemd/system"
(site,) = glob.glob("/opt/mini/venv/lib/python3*/site-packages") or [""]

def read(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""

def names(top):
    return [os.path.join(folder, name) for folder, folders, files in os.walk(top) for name in files + folders]

def bytes_of(path):
    text = re.sub(rb"\d{4}-([0-9a-f]{8})", rb"\1" if digests else rb"", read(path))
    text = re.sub(rb'"(when|since|expires|unix|who)": ?("[^"]*"|[0-9.]+)', rb"", text)
    return hashlib.sha256(text).hexdigest()

files = {}
kept = [path for path in names(UNITS) if unit in path or "ddtool" in path]
kept += [path for path in names(site + "/sglang") if path.endswith(".py")] if site else []
kept += glob.glob(STATE + "/services/*/*.json") + glob.glob(STATE + "/ledger/*.json")
for path in kept:
    if os.path.islink(path):
        files[path] = os.readlink(path)
    elif os.path.isfile(path) and ".ddtool-" not in path:
        files[path] = bytes_of(path)
for path in glob.glob("/opt/mini/venv-*"):
    files[path] = "environment"
if os.path.islink("/opt/mini/venv"):
    files["/opt/mini/venv"] = os.readlink("/opt/mini/venv")

show = subprocess.run(["systemctl", "show", unit, "-p", "ActiveState,InvocationID,MainPID"],
                      capture_output=True, text=True).stdout
shown = dict(line.split("=", 1) for line in show.splitlines() if "=" in line)
transient = subprocess.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "ddtool-*"],
                           capture_output=True, text=True).stdout.split("\n")
folders = [path for path in glob.glob(STATE + "/services/*/releases/*") if os.path.isdir(path)]
begun = [path for path in glob.glob(STATE + "/txn/*/journal.jsonl") if b"\n" in read(path)]
open_plans = [os.path.dirname(path) for path in begun if os.path.exists(os.path.dirname(path) + "/plan.json")]
tops = (UNITS, site + "/sglang", STATE + "/services", STATE + "/ledger", STATE + "/objects")
left = [path for top in tops for path in names(top) if os.path.basename(path).startswith(".ddtool-")]
left += [path for top in ("", "/agent", "/environments") for path in glob.glob(STATE + top + "/.ddtool-*")]
left += glob.glob("/opt/mini/.ddtool-*") + glob.glob(STATE + "/services/*/releases/.*")
left += [path for path in [STATE + "/txn.open", "/run/ddtool/" + unit + "/experiment"] if os.path.exists(path)]
ledgers = [json.loads(read(path)) for path in glob.glob(STATE + "/ledger/*.json")]
print(json.dumps({
    "files": files,
    "active": shown.get("ActiveState"), "invocation": shown.get("InvocationID"), "pid": int(shown.get("MainPID") or 0),
    "transient": [line.split()[0] for line in transient if line and not line.startswith("ddtool-txn-x")],
    "left": left, "open": open_plans,
    "releases": sorted(re.sub(r"^\d+-", "", os.path.basename(path)) for path in folders),
    "broken": [path for path in folders if not all(os.path.exists(path + "/" + name)
               for name in ("release.json", "secrets.json", "agent.pyz"))],
    "baselines": sorted(name for ledger in ledgers for name in ledger["baselines"]),
    "objects": sorted(os.path.basename(path) for path in glob.glob(STATE + "/objects/*")),
    "audit": read(STATE + "/audit.jsonl").decode().splitlines(),
    "stepped": [path for path in begun if b'{"step"' in read(path)],
}))
"""
Seen = dict[str, Any]


def see(host: Sandbox, unit: str, *, secrets: bool = False) -> Seen:
    """`{files: {path: hash}, active, invocation, pid, left, open, transient, releases, broken, baselines, objects,
    audit, stepped (transactions that have begun a step)}`."""
    done = exec_inside(host, ["python3", "-I", "-c", LOOK, unit, "" if secrets else "digests"])
    assert done.returncode == 0, done.stderr
    seen: Seen = json.loads(done.stdout)
    return seen


def different(one: Seen, two: Seen) -> list[str]:
    """Managed files that differ."""
    files = one["files"].keys() | two["files"].keys()
    return sorted(path for path in files if one["files"].get(path) != two["files"].get(path))


def not_whole(found: Seen, old: Seen, new: Seen) -> list[str]:
    """Managed files that are neither as before nor as after. What exists only during a change is neither."""
    passing = (GATE, *SAFEGUARDS)
    return [
        path
        for path in sorted(found["files"].keys() | old["files"].keys() | new["files"].keys())
        if not path.endswith(passing)
        and found["files"].get(path) not in (old["files"].get(path), new["files"].get(path))
    ]


def left_over(found: Seen) -> list[str]:
    """Temporary files, open transactions and units, a lock: nothing of these when all is settled."""
    units = [name for name in found["transient"] if re.match(r"ddtool-(txn|settle)", name)]
    return [*found["left"], *found["open"], *units]


def lost(found: Seen, before: Seen) -> list[str]:
    """What was kept before and is not there now: releases, baselines, their bytes, lines of the audit."""
    gone = [f"{kind}: {item}" for kind in NOT_LOST for item in before[kind] if item not in found[kind]]
    if found["audit"][: len(before["audit"])] != before["audit"]:
        gone.append("lines of the audit")
    return gone + [f"half a release: {path}" for path in found["broken"]]
