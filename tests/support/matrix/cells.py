"""One cell: a verb and a fault, at several points. Inject, let the next command settle, check every promise."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from support import doctored
from support.matrix import state
from support.matrix.injections import HELD as WHILE_HELD
from support.matrix.injections import KILLED, Case, Injection
from support.matrix.stages import HELD, Stage, operator
from support.matrix.verbs import VERBS, Verb
from support.remote import until
from support.world import ignore

from ddtool.errors import DdtoolError

FINISHED, UNDONE, REFUSED = "finished", "undone", "refused, nothing touched"
LOSS, NOT_APPLICABLE = "LOSS", "not applicable"
PATIENCE_S = 90.0
EXITS = (0, 1, 3, 4, 5, 6, 7, -9)
Point = dict[str, Any]


class Loss(Exception):
    """A promise is broken."""


def promise(kept: object, what: str) -> None:
    if not kept:
        raise Loss(what)


@dataclass
class Ready:
    """A verb on its stage, in the state where it begins, and what an undisturbed run of it does."""

    name: str
    verb: Verb
    stage: Stage
    env: dict[str, str]
    acts: list[dict[str, Any]] = field(default_factory=list)
    before: state.Seen = field(default_factory=dict)
    after: state.Seen = field(default_factory=dict)

    @classmethod
    def make(cls, name: str, stage: Stage, seed: int) -> Ready:
        verb = VERBS[name]
        env = {
            **os.environ,
            "DDTOOL_HOST": f"sandbox:{stage.host.name}",
            "DDTOOL_PROFILE": str(stage.profile),
        }
        ready = cls(name, verb, stage, env)
        for move in verb.setup:
            move(stage)
        ready.before = ready.stage.see()
        ready.arm(0)
        done = ready.start().communicate(timeout=PATIENCE_S)
        ready.settled()
        ready.after = ready.stage.see()
        ready.acts = doctored.acts(stage.host)
        assert ready.acts or not verb.transaction, done
        random.Random(f"{seed} {name}").shuffle(ready.acts)
        ready.go_back()
        return ready

    def arm(self, at: int, *, hold: bool = False) -> None:
        process = "txn" if self.verb.transaction else "serve"
        looks = not self.verb.transaction
        doctored.arm(self.stage.host, process, at, hold=hold, looks=looks)

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            operator(self.stage, (*self.verb.command, "--yes")),
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def go_back(self) -> None:
        for move in self.verb.back:
            move(self.stage)
        self.settled()

    def leave(self) -> None:
        for move in self.verb.teardown:
            move(self.stage)

    def settled(self) -> None:
        """Until a service that is starting answers, and the last transaction's unit is gone."""
        self.stage.wait()
        until(lambda: not executors(self.stage), PATIENCE_S, 0.1)

    def points(self, injection: Injection, number: int) -> list[dict[str, Any]]:
        """Acts to strike at, other ones for each fault: every second one a boundary between steps."""
        kinds = [
            [act for act in self.acts if is_boundary(act)],
            [act for act in self.acts if not is_boundary(act)],
        ]
        kinds = [kind for kind in kinds if kind]
        chosen = []
        for nth in range(injection.points):
            kind = kinds[(number + nth) % len(kinds)]
            chosen.append(kind[(number * injection.points + nth) // len(kinds) % len(kind)])
        return sorted(chosen, key=lambda act: act["at"])


def is_boundary(act: dict[str, Any]) -> bool:
    """A line of the transaction's journal is written, and what it announces has not begun."""
    return bool(act["act"] == "fsync" and act["in"][:2] == ["append_line", "record"])


def run_cell(ready: Ready, injection: Injection, number: int) -> dict[str, Any]:
    """`{verb, fault, outcome, points: [{at, act, in, end, exit, said, seconds, …}]}`."""
    cell: dict[str, Any] = {"verb": ready.name, "fault": injection.name, "points": []}
    why = not_applicable(ready, injection)
    if why:
        return {**cell, "outcome": f"{NOT_APPLICABLE}: {why}"}
    points = ready.points(injection, number) if injection.when in (WHILE_HELD, KILLED) else [None]
    for point in points:
        cell["points"].append(strike(ready, injection, point))
    last = cell["points"][-1]
    if not any(point["end"].startswith(LOSS) for point in cell["points"]):
        with Checked(last):
            if last["end"] != FINISHED or not ready.verb.back:
                works_undisturbed(ready)  # else the way back was a change, and has worked
            left = state.left_over(ready.stage.see())
            promise(not left, f"left after the next change: {left}")
    return {**cell, "outcome": outcome(cell["points"])}


def not_applicable(ready: Ready, injection: Injection) -> str | None:
    if not ready.verb.transaction and injection.when == KILLED:
        return "there is nothing to change, so no executor runs"
    serves = "active" in (ready.before["active"], ready.after["active"])
    if injection.name == "systemd restarts the unit" and not serves:
        return "no service runs"
    return None


def outcome(points: list[Point]) -> str:
    losses = [point["end"] for point in points if point["end"].startswith(LOSS)]
    if losses:
        return "; ".join(losses)
    counts = Counter(point["end"] for point in points)
    return ", ".join(f"{end} ×{count}" if len(points) > 1 else end for end, count in sorted(counts.items()))


class Checked:
    """Turns a broken promise inside into the end of a point."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, (Loss, AssertionError, DdtoolError, subprocess.TimeoutExpired)):
            self.point["end"] = f"{LOSS}: {type(error).__name__}: {error}"[:1500]
            return True
        return False


def strike(ready: Ready, injection: Injection, act: dict[str, Any] | None) -> Point:
    """The command once, with the fault at one act of it (None: all the time); then what the next command finds."""
    begun = time.monotonic()
    point: Point = {key: act[key] for key in ("at", "act")} | {"in": act["in"][:3]} if act else {}
    with Checked(point):
        case = Case(ready.stage, ready.verb.command, ready.env, chance=random.Random(str(point)))
        before = ready.stage.see()
        injection.prepare(case)
        try:
            suffer(ready, injection, case, point)
        finally:
            case.over.set()
            injection.clear(case)
            doctored.disarm(ready.stage.host)
        point.update(case.notes)
        found = ready.stage.see()
        point["stepped"] = len(set(found["stepped"]) - set(before["stepped"]))
        broken = state.not_whole(found, before, ready.after)
        if not ready.verb.temporary:
            promise(not broken, f"neither old nor new: {broken}")
        point["end"] = recover(ready, injection, before, point)
    point["seconds"] = round(time.monotonic() - begun, 1)
    return point


def suffer(ready: Ready, injection: Injection, case: Case, point: Point) -> None:
    """Start the command, let it come to the act, inject, and wait until nothing of it runs any more."""
    held = ready.stage.path(HELD)
    if point:
        ready.arm(point["at"], hold=injection.when != KILLED)
    else:
        injection.inject(case)
    case.operator = ready.start()
    try:
        if point and injection.when != KILLED:
            until(lambda: held.exists() or case.operator.poll() is not None, PATIENCE_S, 0.02)
            point["reached"] = held.exists()
            if held.exists():
                injection.inject(case)
            with suppress(FileNotFoundError):
                ready.stage.path(HELD).unlink()
        until(lambda: not executors(ready.stage), PATIENCE_S, 0.1)
        said, _ = case.operator.communicate(timeout=PATIENCE_S)
    finally:
        case.operator.kill()
    point["exit"] = case.operator.returncode
    point["said"] = next((line[:200] for line in said.splitlines() if line.startswith("error: ")), None)
    promise(case.operator.returncode in EXITS, f"exit {case.operator.returncode}: {said[-600:]}")
    promise("Traceback" not in said, f"a traceback: {said[-1200:]}")


def executors(stage: Stage) -> str:
    """Transactions that run, or are about to."""
    return stage.inside(
        "systemctl list-units --plain --no-legend --state=active,activating,deactivating 'ddtool-txn-*' "
        "'ddtool-settle*' | cut -d' ' -f1"
    )


def recover(ready: Ready, injection: Injection, before: state.Seen, point: Point) -> str:
    """What the next command does first, and every promise afterwards. How the command ended."""
    with ready.stage.connect() as deployment:
        promise(deployment.facts["transactions"]["lock"] is None, "the lock is still held")
        dead = [item["kind"] for item in deployment.facts["transactions"]["dead"]]
        point["settled"] = dead
        deployment.settle(ignore)
        promise(deployment.facts["transactions"]["dead"] == [], "a dead transaction is left")
    ready.settled()
    now = ready.stage.see()
    undone, finished = not state.different(now, before), not state.different(now, ready.after)
    promise(
        undone or finished,
        f"neither before {state.different(now, before)} nor after {state.different(now, ready.after)}",
    )
    end = end_of(ready, now, before, point, undone, finished)
    left = state.left_over(now)
    if not dead:  # nothing was settled; what a killed process had begun to write goes with the next change
        left = [path for path in left if not path.startswith(f"{state.STATE}/.ddtool-")]
    promise(not left, f"left: {left}")
    ready.stage.check_starts()
    restarted = injection.ends_runs or point.get("second", "").startswith("exit 0")
    check_service(ready, before, now, end, restarted=restarted)
    if not (end == FINISHED and ready.verb.forgets):
        gone = state.lost(now, before)
        promise(not gone, f"lost: {gone}")
    if end == FINISHED:
        ready.go_back()
    elif not point["stepped"]:
        end = REFUSED
    return end


def end_of(
    ready: Ready, now: state.Seen, before: state.Seen, point: Point, undone: bool, finished: bool
) -> str:
    if undone and finished:  # it changes no file that lasts
        written = now["audit"][len(before["audit"]) :]
        if ready.verb.transaction and not written and point["exit"]:
            return UNDONE
        if before["active"] != ready.after["active"]:
            return FINISHED if now["active"] == ready.after["active"] else UNDONE
        good = point["exit"] == 0 or any('"ok": true' in line and '"settle"' not in line for line in written)
        return FINISHED if good else UNDONE
    return FINISHED if finished else UNDONE


def check_service(ready: Ready, before: state.Seen, now: state.Seen, end: str, *, restarted: bool) -> None:
    """It runs exactly when it ran before, or is wanted now. `restarted`: the fault itself may have started it anew."""
    wanted = ready.after["active"] if end == FINISHED else before["active"]
    if restarted and now["active"] == "active":
        return
    promise(now["active"] == wanted, f"the service is {now['active']}, not {wanted}")
    if ready.verb.keeps_running and not restarted:
        promise(now["invocation"] == before["invocation"], "the running process was ended")


def works_undisturbed(ready: Ready) -> None:
    """The command itself, when nothing happens to it."""
    with ready.start() as running:
        said, _ = running.communicate(timeout=PATIENCE_S)
    promise(running.returncode == 0, f"the next command fails: {said[-1200:]}")
    ready.settled()
    different = state.different(ready.stage.see(), ready.after)
    promise(not different, f"the next command ends elsewhere: {different}")
    ready.go_back()
