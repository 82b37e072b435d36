"""kill -9 while a unit is taken over or given back: as before or as after, the service answers, no file is half a unit.

Taking over, and giving back before a restart, never end the running process, wherever they are killed.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import doctored, handmade, mini
from support.handmade import NAME, invocation, look
from support.remote import output, until
from support.world import ignore

from ddtool import profile
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.plan import Plan
from ddtool.errors import DdtoolError
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(3600)]

TEXT = f"""extends: {mini.PROFILE}
service: {{unit: {NAME}, api_key: '${{env:SGLANG_API_KEY}}'}}
health: {{concurrent: 1, max_tokens: 6}}
"""
Make = Callable[[Deployment], Plan]


# Acts between two steps, for each operation. Read here, since a test sees no such variable.
SAMPLE = int(os.environ.get("DDTOOL_KILLS", "12"))
# Functions whose acts are the takeover's; those of releases, gates and the lock are test_kill.py's.
TAKEOVERS_OWN = {
    *("stage", "swap", "put_links", "drop_own_link", "restore_folder", "finish", "forget"),
    *("close_starts", "open_starts", "_settled"),
}


def take_over(deployment: Deployment) -> Plan:
    return deployment.plan_deploy(take_over=True)


def take_over_at_once(deployment: Deployment) -> Plan:
    return deployment.plan_deploy(take_over=True, restart=True)


def give_back(deployment: Deployment) -> Plan:
    return deployment.plan_remove(restore_unit=True)


@dataclass(frozen=True)
class Operation:
    """`before`: what leads to its begin from the hand-made unit; `back`: from its end to its begin again."""

    make: Make
    before: tuple[Make, ...]
    back: tuple[Make, ...]
    keeps_running: bool = False


OPERATIONS = {
    "take over": Operation(take_over, (), (give_back,), keeps_running=True),
    "give back before a restart": Operation(give_back, (take_over,), (take_over,), keeps_running=True),
    "take over at once": Operation(take_over_at_once, (), (give_back,)),
    "first restart": Operation(Deployment.plan_restart, (take_over,), (give_back, take_over)),
    "give back": Operation(give_back, (take_over_at_once,), (take_over_at_once,)),
}


class Stage:
    """The host with the hand-made service, driven in this process by an agent that can be told to die."""

    def __init__(self, host: Sandbox, path: Path) -> None:
        self.host = host
        self.path = path
        self.handmade = self.see()

    def connect(self) -> Deployment:
        return Deployment(profile.load(str(self.path)), f"sandbox:{self.host.name}")

    def change(self, *plans: Make) -> None:
        for make in plans:
            with self.connect() as deployment:
                deployment.apply(make(deployment), ignore)
            self.wait()

    def wait(self) -> None:
        until(lambda: f":{handmade.PORT}" in output(self.host, "ss -ltn"))

    def see(self) -> dict[str, Any]:
        """Everything of the unit, release numbers taken out, and which process runs."""
        script = (
            r"sed -E 's/[0-9]{4}-[0-9a-f]{8}/RELEASE/g' /etc/systemd/system/" + f"{NAME}.service | sha256sum"
        )
        files = {**look(self.host), f"{handmade.UNITS}/{NAME}.service": output(self.host, script)}
        kept = output(
            self.host, f"ls /var/lib/ddtool/services/{NAME} /var/lib/ddtool/objects 2>/dev/null || true"
        )
        cwd = output(self.host, f"readlink /proc/$(systemctl show {NAME} -p MainPID --value)/cwd || true")
        return {"files": files, "adopted": "adopted.json" in kept, "release_runs": "/releases/" in cwd}

    def recover(self, hit: object) -> None:
        """What the next command does, and what must be true then."""
        with self.connect() as deployment:
            assert deployment.facts["transactions"]["lock"] is None, hit
            deployment.settle(ignore)
        self.wait()
        with self.connect() as deployment:
            facts = deployment.facts
        assert facts["transactions"]["dead"] == [], hit
        assert facts["service"]["unit"]["active"] == "active", hit
        left = output(
            self.host, "find /etc/systemd/system -name '.ddtool-*'; ls /var/lib/ddtool/txn.open 2>&1 || true"
        )
        assert "No such file" in left and ".ddtool-" not in left, (hit, left)


@pytest.fixture(scope="module")
def stage(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    path = tmp_path_factory.mktemp("profile") / "k26.yaml"
    path.write_text(TEXT)
    mini.install(host)
    handmade.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        patch.setenv("SGLANG_API_KEY", handmade.KEY)
        yield Stage(host, path)


def attack(stage: Stage, operation: Operation, after: dict[str, Any], at: int) -> dict[str, Any] | None:
    """Kill the executor at its `at`-th act. Returns what was hit and how it ended; None when it was over by then."""
    before, run = stage.see(), invocation(stage.host)
    doctored.arm(stage.host, "txn", at)
    with stage.connect() as deployment, suppress(DdtoolError):
        deployment.apply(operation.make(deployment), ignore)
    hit = doctored.fired(stage.host)
    if hit is None:
        doctored.disarm(stage.host)
        stage.wait()
        stage.change(*operation.back)
        return None
    check_whole_files(stage.see()["files"], [before["files"], after["files"], stage.handmade["files"]], hit)
    stage.recover(hit)
    now = stage.see()
    hit["end"] = "undone" if now == before else "finished"
    assert now in (before, after), (hit, now, before, after)
    if operation.keeps_running:
        assert invocation(stage.host) == run, hit
    if hit["end"] == "finished":
        stage.change(*operation.back)
    return hit


def check_whole_files(found: dict[str, Any], states: list[dict[str, Any]], hit: object) -> None:
    """Right after the kill: each file as in one of the states; a first restart goes through the hand-made one.

    The gate's drop-in and folders that hold temporary files are neither.
    """
    for path in found.keys() | {path for state in states for path in state}:
        if "ddtool-" not in path and not path.endswith(".d"):
            assert found.get(path) in [state.get(path) for state in states], (path, hit)


@pytest.mark.parametrize("name", OPERATIONS)
def test_executor_killed_at_every_step(stage: Stage, name: str) -> None:
    operation = OPERATIONS[name]
    stage.change(*operation.before)
    doctored.arm(stage.host, "txn", 0)
    stage.change(operation.make)
    acts, after = doctored.acts(stage.host), stage.see()
    stage.change(*operation.back)
    steps = {
        act["at"] for act in acts if act["act"] == "fsync" and act["in"][:2] == ["append_line", "record"]
    }
    others = sorted({act["at"] for act in acts if TAKEOVERS_OWN & set(act["in"])} - steps)
    chosen = random.Random(name).sample(others, min(SAMPLE, len(others)))
    print(
        json.dumps({"operation": name, "acts": len(acts), "steps": len(steps), "chosen": len(chosen)}),
        flush=True,
    )
    hits = []
    for at in sorted({*steps, *chosen}):
        hit = attack(stage, operation, after, at)
        print(json.dumps(hit), flush=True)
        hits.append(hit)
    ends = {hit["end"] for hit in hits if hit}
    assert ends == {"undone", "finished"}
    if operation.before:
        stage.change(give_back)
