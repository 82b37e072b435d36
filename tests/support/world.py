"""The mini service's host for tests that disturb changes: each by name, what it leaves, what every start saw."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support import mini
from support.remote import output

from ddtool import profile
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.plan import Plan
from ddtool.sandbox import Sandbox, exec_inside

UNIT = "sglang-mini"
FAST = ["health.concurrent=1", "health.max_tokens=6", "service.deadlines.start_s=60"]
VARIANTS = {"A": FAST, "B": [*FAST, "server_args.context-length=2048"], "C": [*FAST, "env.MINI_CRASH=start"]}
PATCH: dict[str, Any] = {
    "schema": "ddtool.patch/1",
    "name": "two-files",
    "kind": "diagnostic",
    "summary": "edits two files that must never be seen apart",
    "cost": "none",
    "expires": 14,
    "hypothesis": {"fired": "it fired", "not_fired": "it did not", "not_reached": "nothing ran"},
    "events": {},
    "targets": [
        {
            "file": "sglang/srt/model_executor/cuda_graph_runner.py",
            "function": "get_batch_sizes_to_capture",
            "releases": [mini.VERSION],
            "ast_sha256": {mini.VERSION: "fdb4af00815eb3015839a0e5e57914e197a7d9bac3c888cfbd77b37337ae95fd"},
            "append": None,
            "edits": [
                {
                    "anchor": "return [bs for bs in (1, 2, 4, 8, 16) if bs <= max_bs]",
                    "place": "before",
                    "code": 'logger.info("two-files: one")',
                }
            ],
        },
        {
            "file": "sglang/srt/managers/scheduler.py",
            "function": "Scheduler.wait_for_nothing",
            "releases": [mini.VERSION],
            "ast_sha256": {mini.VERSION: "2ca351a7692818fc6a017b1d6d4e5bf8ecd89ccf1df1b18d2672acb5b0676201"},
            "append": None,
            "edits": [
                {
                    "anchor": "threading.Event().wait()",
                    "place": "before",
                    "code": 'logger.info("two-files: two")',
                }
            ],
        },
    ],
}

# Prints what this host's managed files are now: path → sha256, release numbers taken out (they only grow).
LOOK = r"""
import glob, hashlib, json, os, re
site, = glob.glob("/opt/mini/venv/lib/python3*/site-packages")
kept = ["/etc/systemd/system/sglang-mini.service", "/etc/systemd/system/sglang-mini.service.d/ddtool-gate.conf",
        "/var/lib/ddtool/services/sglang-mini/service.json",
        site + "/sglang/srt/model_executor/cuda_graph_runner.py", site + "/sglang/srt/managers/scheduler.py"]
files = {}
for path in kept:
    if os.path.exists(path):
        text = re.sub(rb"\d{4}-([0-9a-f]{8})", rb"\1", open(path, "rb").read())
        files[path.rsplit("/", 1)[1]] = hashlib.sha256(text).hexdigest()
files["enabled"] = os.path.lexists("/etc/systemd/system/multi-user.target.wants/sglang-mini.service")
left = [path for top in ("/etc/systemd/system", site + "/sglang")
        for folder, _, names in os.walk(top) for path in (os.path.join(folder, name) for name in names)
        if os.path.basename(path).startswith(".ddtool-")] + glob.glob("/var/lib/ddtool/txn.open")
temps = glob.glob("/var/lib/ddtool/.ddtool-*") + glob.glob("/var/lib/ddtool/agent/.ddtool-*")
begun = [path for path in glob.glob("/var/lib/ddtool/txn/*/journal.jsonl") if "\n" in open(path).read()]
plans = [path for path in glob.glob("/var/lib/ddtool/txn/*/plan.json")
         if os.path.dirname(path) + "/journal.jsonl" in begun]
"""
SHOW = LOOK + 'print(json.dumps({"files": files, "left": left, "plans": plans, "temps": temps}))'
WITNESS = (
    LOOK
    + r"""
def release(path):
    found = re.search(rb"\d{4}-[0-9a-f]{8}", open(path, "rb").read()) if os.path.exists(path) else None
    return found and found.group().decode()
with open("/var/log/witness", "a") as log:
    log.write(json.dumps({"unit": release(kept[0]), "service": release(kept[2]), "one": files["cuda_graph_runner.py"],
                          "two": files["scheduler.py"], "open": os.path.exists("/var/lib/ddtool/txn.open")}) + "\n")
"""
)


@dataclass
class World:
    """The host with the mini service, driven in this process by an agent that can be told to die."""

    host: Sandbox
    sets: list[tuple[str, str]] = field(default_factory=list)
    """The (old, old) and (new, new) hashes of the two patched files."""
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Operation → the managed files after it, when nothing disturbs it."""

    @contextmanager
    def connect(self, variant: str = "A") -> Iterator[Deployment]:
        loaded = profile.load(str(mini.PROFILE), VARIANTS[variant])
        with Deployment(loaded, f"sandbox:{self.host.name}") as deployment:
            yield deployment

    def change(self, operation: str) -> None:
        """Do it undisturbed."""
        make, variant = OPERATIONS[operation]
        with self.connect(variant) as deployment:
            deployment.apply(make(deployment), ignore)

    def change_without_preflight(self, operation: str) -> None:
        """The same on a file system that a preflight finds too small."""
        make, variant = OPERATIONS[operation]
        with self.connect(variant) as deployment:
            deployment.facts["host"]["state_free_mib"] = 4096
            deployment.apply(make(deployment), ignore)

    def look(self) -> dict[str, Any]:
        done = exec_inside(self.host, ["python3", "-I", "-c", SHOW])
        assert done.returncode == 0, done.stderr
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def files(self) -> dict[str, Any]:
        files: dict[str, Any] = self.look()["files"]
        return files

    def recover(self, hit: object) -> None:
        """What the next command does, and what must be true then."""
        with self.connect() as deployment:
            assert deployment.facts["transactions"]["lock"] is None, hit
            deployment.settle(ignore)
            status = deployment.status()
        assert status["transactions"]["dead"] == [], hit
        if status["release"]:
            assert status["unit"]["active"] == "active" and status["health"]["ok"], (hit, status)
        self.check_starts()
        now = self.look()
        assert now["left"] == [] and now["plans"] == [], (hit, now)

    def check_starts(self) -> int:
        """No start of the service ever saw a mixed set. Returns how many there were since the last call."""
        seen = output(self.host, "cat /var/log/witness; : > /var/log/witness").splitlines()
        for line in seen:
            start = json.loads(line)
            assert start["unit"] == start["service"], start
            assert (start["one"], start["two"]) in self.sets, start
            assert not start["open"], start
        return len(seen)


def ignore(event: dict[str, Any]) -> None:
    return


def toggle(enable: bool, restart: bool = True) -> Callable[[Deployment], Plan]:
    def plan(deployment: Deployment) -> Plan:
        request: dict[str, Any] = {"op": "restore", "venv": mini.VENV}
        if enable:
            request = {"op": "toggle", "venv": mini.VENV, "enable": [PATCH], "disable": [], "who": "test"}
        return deployment.plan_toggle("diag enable" if enable else "restore", request, restart=restart)

    return plan


# name → how to plan it, and the variant of the profile it is planned with
OPERATIONS: dict[str, tuple[Callable[[Deployment], Plan], str]] = {
    "deploy B": (Deployment.plan_deploy, "B"),
    "deploy A": (Deployment.plan_deploy, "A"),
    "deploy crash": (Deployment.plan_deploy, "C"),
    "rollback": (lambda deployment: deployment.plan_rollback(None), "A"),
    "diag enable": (toggle(True), "A"),
    "diag enable without restart": (toggle(True, restart=False), "A"),
    "restore": (toggle(False), "A"),
    "restore without restart": (toggle(False, restart=False), "A"),
    "restart": (Deployment.plan_restart, "A"),
    "start": (Deployment.plan_start, "A"),
    "stop": (Deployment.plan_stop, "A"),
    "remove": (Deployment.plan_remove, "A"),
}
BACK = {
    "deploy B": "deploy A",
    "rollback": "rollback",
    "diag enable": "restore",
    "restore": "diag enable",
    "remove": "deploy A",
}


def prepare(host: Sandbox) -> World:
    """Two releases, A current and B previous; no diagnostics; each start noted by a witness."""
    mini.install(host)
    folder = f"/etc/systemd/system/{UNIT}.service.d"
    output(host, "cat > /opt/mini/witness.py", input=WITNESS)
    drop_in = "[Service]\nExecStartPre=/usr/bin/python3 -I /opt/mini/witness.py\n"
    output(host, f"mkdir -p {folder} && cat > {folder}/witness.conf && touch /var/log/witness", input=drop_in)
    world = World(host)
    for name in ("deploy A", "deploy B", "deploy A"):
        world.change(name)
    for name in ("diag enable", "restore"):
        files = world.files()
        world.sets.append((files["cuda_graph_runner.py"], files["scheduler.py"]))
        world.change(name)
    world.check_starts()
    return world
