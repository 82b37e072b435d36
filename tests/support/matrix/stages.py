"""Hosts for the matrix, each with the mini service in another way, and how to bring them from state to state."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from support import doctored, handmade, mini, wheels
from support.cli import ok
from support.matrix import state
from support.remote import until
from support.world import FAST, PATCH, UNIT, World, ignore, prepare

from ddtool import profile
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.plan import Plan
from ddtool.sandbox import Sandbox, exec_inside
from ddtool.transport import agent

Make = Callable[[Deployment], Plan]
HELD = "/run/held"
# The unit waits 10 s before a restart; here it must come while a change is under way.
SOON = "[Service]\nRestartSec=200ms\n"
DEADLINES = {"start_s": 60, "stop_s": 5, "request_s": 10}
SMALL_DISK = "512m"  # of all stages, so that it can be filled


@dataclass
class Stage:
    """A host and the profile that is deployed on it. `sets`: the overrides of every command on it; `secrets`: its
    releases hold one."""

    host: Sandbox
    unit: str
    profile: Path
    patches: Path
    sets: Sequence[str] = ()
    world: World | None = None
    secrets: bool = False

    def connect(self, sets: Sequence[str] | None = None) -> Deployment:
        chosen = self.sets if sets is None else sets
        return Deployment(profile.load(str(self.profile), chosen), f"sandbox:{self.host.name}")

    def change(self, make: Make, sets: Sequence[str] | None = None) -> None:
        """One change that nothing disturbs."""
        with self.connect(sets) as deployment:
            deployment.apply(make(deployment), ignore)
        self.wait()

    def wait(self) -> None:
        """Until what starts has started, and what runs also answers: a unit that was given back has no gate."""
        state = until(self._settled_state, 60)
        if state == "active":
            until(lambda: f":{handmade.PORT}" in self.inside("ss -ltn"), 30)

    def _settled_state(self) -> str | None:
        """None while systemd is at it."""
        state = self.inside(f"systemctl is-active {self.unit} || true")
        return None if state in ("activating", "deactivating", "reloading") else state

    def inside(self, command: str) -> str:
        """At the host's console, which needs neither sshd nor a network. Output, stripped; it must succeed."""
        done = exec_inside(self.host, ["sh", "-c", command])
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def path(self, inside: str) -> Path:
        """A file of the host, seen from this machine without starting anything there."""
        from ddtool.sandbox import find

        return Path(f"/proc/{find(self.host.name).pid}/root{inside}")

    def see(self) -> state.Seen:
        return state.see(self.host, self.unit, secrets=self.secrets)

    def check_starts(self) -> None:
        if self.world:
            self.world.check_starts()


def patches(folder: Path) -> Path:
    """A folder of definitions with the one that edits two files."""
    made = folder / "patches" / PATCH["name"]
    made.mkdir(parents=True)
    (made / "patch.yaml").write_text(yaml.safe_dump(PATCH))
    return made.parent


def deployed(host: Sandbox, folder: Path) -> Stage:
    """Release A current, B previous, serving; every start is noted by a witness."""
    stage = Stage(host, UNIT, mini.PROFILE, patches(folder), FAST)
    stage.world = prepare(host)
    stage.inside(
        f"printf '{SOON}' > /etc/systemd/system/{UNIT}.service.d/soon.conf && systemctl daemon-reload"
    )
    return stage


def made_by_hand(host: Sandbox, folder: Path) -> Stage:
    """A stranger's unit, running."""
    path = folder / "k26.yaml"
    path.write_text(
        json.dumps(
            {
                "extends": str(mini.PROFILE),
                "service": {
                    "unit": handmade.NAME,
                    "api_key": "${env:SGLANG_API_KEY}",
                    "deadlines": DEADLINES,
                },
                "health": {"concurrent": 1, "max_tokens": 6},
            }
        )
    )
    os.environ["SGLANG_API_KEY"] = handmade.KEY
    mini.install(host)
    handmade.install(host)
    return Stage(host, handmade.NAME, path, patches(folder), secrets=True)


def bare(host: Sandbox, folder: Path) -> Stage:
    """The models alone. The profile brings the environment along, as wheels."""
    links = wheels.mini_service(folder / "links")
    wheels.add_pip(links)
    given = yaml.safe_load(mini.PROFILE.read_text())
    given["engine"].update(install="managed", wheelhouse=str(folder / "house"))
    given["health"].update(concurrent=1, max_tokens=6)
    given["service"]["deadlines"] = DEADLINES
    path = folder / "managed.yaml"
    path.write_text(yaml.safe_dump(given))
    mini.install_models(host)
    stage = Stage(host, UNIT, path, patches(folder))
    where = {"DDTOOL_HOST": f"sandbox:{host.name}"}
    ok("wheelhouse", "build", str(path), env={**wheels.only_from(links), **where})
    return stage


STAGES = {"deployed": deployed, "made by hand": made_by_hand, "bare": bare}


def use_doctored_agent() -> None:
    """This process's own connections, too, bring the agent that can be told to stand."""
    agent.agent_zipapp = doctored.agent


def operator(stage: Stage, command: Sequence[str]) -> list[str]:
    """The command line of a verb on this stage; `PROFILE` stands for its profile."""
    script = Path(__file__).parents[1] / "as_operator.py"
    words = [str(stage.profile) if word == "PROFILE" else word for word in command]
    return [sys.executable, str(script), str(stage.patches), *words]
