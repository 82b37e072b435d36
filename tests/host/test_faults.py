"""Cut links, dead clients, power cuts, restarts in the middle, races and full disks, on a host that serves."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support import doctored, mini
from support.cli import DDTOOL, ddtool
from support.faults import stuff, unstuff
from support.remote import output, ssh, until
from support.world import OPERATIONS, UNIT, VARIANTS, World, ignore, prepare

from ddtool.errors import ConnectionLost, DdtoolError
from ddtool.sandbox import Sandbox, down

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]

SITE = "/opt/mini/venv/lib/python3*/site-packages/sglang/srt"
PROFILE = str(mini.PROFILE)


@pytest.fixture(scope="module")
def world(host: Sandbox) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", PROFILE)
        yield prepare(host)


def sets(variant: str) -> list[str]:
    return [word for override in VARIANTS[variant] for word in ("--set", override)]


def other(world: World) -> str:
    """The variant that is not deployed now."""
    with world.connect() as deployment:
        current = next(item for item in deployment.facts["releases"] if item["role"] == "current")
    return "A" if current["config"].get("context-length") else "B"


# Links and clients


def kill_serving_agents(host: Sandbox) -> None:
    script = (
        "import glob, os, signal\n"
        "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try:\n"
        "        words = open(path, 'rb').read().split(b'\\0')\n"
        "    except OSError:\n"
        "        continue\n"
        "    if b'serve' in words and b'--state' in words:\n"
        "        os.kill(int(path.split('/')[2]), signal.SIGKILL)\n"
    )
    output(host, "python3 -", input=script)


def disturbed(world: World, operation: str, at: int, disturb: Callable[[], None]) -> bool:
    """Run an operation, disturb the connection when its `at`-th event is read, and attach. False: it had fewer."""
    make, variant = OPERATIONS[operation]
    seen = 0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            disturb()

    with world.connect(variant) as deployment:
        plan = make(deployment)
        try:
            deployment.apply(plan, on_event)
        except ConnectionLost as error:
            assert "--attach" in str(error.hint)
            lost = True
        else:
            lost = False
    if lost:
        with world.connect(variant) as deployment:
            assert deployment.attach(ignore)["ok"]
    return seen >= at


@pytest.mark.parametrize("what", ["link cut", "agent killed"])
def test_a_lost_connection_changes_nothing_about_the_outcome(
    world: World, faults: ModuleType, what: str
) -> None:
    """At a sixth of the progress lines; test_a_lost_connection_at_every_line takes all."""
    for at in range(1 if what == "link cut" else 3, 40, 6):
        if not lose_connection(world, faults, "deploy", what, at):
            break


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["link cut", "agent killed"])
@pytest.mark.parametrize("operation", ["deploy", "diag"])
def test_a_lost_connection_at_every_line(world: World, faults: ModuleType, what: str, operation: str) -> None:
    at = 1
    while lose_connection(world, faults, operation, what, at):
        at += 1
    print(f"{operation}: {what} at {at - 1} lines")
    assert at > 5


def lose_connection(world: World, faults: ModuleType, operation: str, what: str, at: int) -> bool:
    if operation == "deploy":
        name = f"deploy {other(world)}"
    else:
        with world.connect() as deployment:
            name = "restore" if deployment.facts["diagnostics"]["patches"] else "diag enable"
    acts = {
        "link cut": lambda: faults.cut(world.host),
        "agent killed": lambda: kill_serving_agents(world.host),
    }
    again = disturbed(world, name, at, acts[what])
    world.recover((name, what, at))
    return again


def test_ddtool_killed_while_it_watches(world: World) -> None:
    """The transaction runs on to its end on the host."""
    for after in ("[1]", "[3]", "[5]"):
        variant = other(world)
        watched = subprocess.Popen(
            [*DDTOOL, "deploy", PROFILE, "--yes", *sets(variant)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert watched.stderr
        for line in watched.stderr:
            if after in line:
                break
        watched.send_signal(signal.SIGKILL)
        watched.wait()
        watched.stderr.close()
        with world.connect(variant) as deployment:
            assert deployment.attach(ignore)["ok"]
        world.recover(after)
        assert other(world) != variant


# Power, restarts, races


@pytest.mark.parametrize(
    ("operation", "where", "nth"),
    [
        ("deploy", "swap", 2),
        ("deploy", "start", 1),
        ("deploy", "finish_steps", 2),
        ("deploy crash", "undo_all", 6),
    ],
)
def test_power_cut_in_a_deploy(
    world: World, faults: ModuleType, operation: str, where: str, nth: int
) -> None:
    """What boots is a whole set or nothing, and the next command finds a healthy way on."""
    variant = other(world)
    kill_in(world, f"deploy {variant}" if operation == "deploy" else operation, where, nth)
    faults.power_reset(world.host)
    world.check_starts()
    world.recover(where)
    assert (other(world) == variant) == (where != "finish_steps")


def kill_in(world: World, operation: str, function: str, nth: int = 1) -> dict[str, Any]:
    """Run the operation and kill its executor at the `nth` act inside a function of the agent."""
    make, variant = OPERATIONS[operation]
    doctored.arm(world.host, "txn", nth, function)
    with world.connect(variant) as deployment, pytest.raises(DdtoolError):
        deployment.apply(make(deployment), ignore)
    hit = doctored.fired(world.host)
    assert hit is not None
    return hit


def test_a_crash_in_a_half_done_change_is_not_restarted_into_it(world: World) -> None:
    """systemd wants to restart the service between two renames: it has to wait for the next command."""
    world.check_starts()
    hit = kill_in(world, "diag enable without restart", "swap", nth=2)
    assert hit["act"].startswith("os.rename")
    assert ssh(world.host, "test -e /var/lib/ddtool/txn.open").returncode == 0
    main = output(world.host, f"systemctl show {UNIT} -p MainPID --value")
    output(world.host, f"kill -9 {main}; systemctl kill -s KILL {UNIT} || true")
    until(lambda: output(world.host, f"systemctl show {UNIT} -p ActiveState --value") == "inactive", 30)
    assert output(world.host, f"systemctl show {UNIT} -p ConditionResult --value") == "no"
    assert world.check_starts() == 0
    with world.connect() as deployment:
        deployment.settle(ignore)
        until(lambda: deployment.status()["health"]["ok"])
    world.recover("a crash")


@pytest.mark.parametrize(("where", "nth"), [("start", 2), ("record", 12)])
def test_a_restart_that_is_interrupted_leaves_the_service_running(world: World, where: str, nth: int) -> None:
    """After its stop; and when the service has started already, which is then not stopped again."""
    kill_in(world, "restart", where, nth)
    before = output(world.host, f"systemctl show {UNIT} -p InvocationID --value")
    world.recover(where)
    after = output(world.host, f"systemctl show {UNIT} -p InvocationID --value")
    assert (after == before) == (where == "record")


def test_the_loser_of_a_race_for_the_lock_leaves_nothing_to_settle(world: World) -> None:
    host, state = world.host, "/var/lib/ddtool"
    owner = {"txn": "x", "kind": "deploy", "unit": UNIT, "who": "somebody@else", "since_unix": 1.0}
    hold = f"echo '{json.dumps(owner)}' > {state}/lock; exec flock {state}/lock sleep 60"
    output(host, "cat > /run/hold.sh; systemd-run --quiet --unit holder sh /run/hold.sh", input=hold)
    until(lambda: ssh(host, f"flock -n {state}/lock true").returncode == 1)
    ident = time.strftime("%Y%m%dT%H%M%S-loser", time.gmtime())
    folder = write_plan(world, ident)
    assert launch(world, ident).returncode == 5
    result = json.loads(output(host, f"cat {folder}/result.json"))
    assert result["error"]["class"] == "Locked" and "somebody@else" in result["error"]["message"]
    output(host, "systemctl stop holder")
    world.recover("a race")


def test_a_transaction_on_its_way_is_not_taken_for_a_dead_one(world: World) -> None:
    """Its plan is there, its executor is not yet; meanwhile another transaction runs from start to end."""
    ident = time.strftime("%Y%m%dT%H%M%S-early", time.gmtime())
    path = write_plan(world, ident)
    with world.connect() as deployment:
        deployment.apply(deployment.plan_restart(), ignore)
    assert output(world.host, f"ls {path}").split() == ["plan.json"]
    assert launch(world, ident).returncode == 0
    assert json.loads(output(world.host, f"cat {path}/result.json"))["ok"]


def write_plan(world: World, ident: str) -> str:
    plan = {"id": ident, "kind": "stop", "unit": UNIT, "who": "test", "why": None, "steps": []}
    path = f"/var/lib/ddtool/txn/{ident}"
    output(world.host, f"mkdir -p {path} && cat > {path}/plan.json", input=json.dumps(plan))
    return path


def launch(world: World, ident: str) -> subprocess.CompletedProcess[str]:
    return ssh(world.host, f"python3 -I $(ls -t /var/lib/ddtool/agent/*.pyz | head -1) txn {ident}")


# Full disks


def refused(world: World, operation: str, folder: str, room: int) -> bool:
    """Run it on a file system that fills up, but for `room` KiB, after the preflight has looked at it.

    True when it failed: in words, and with nothing changed and what served still serving. False: it had room enough.
    """
    make, variant = OPERATIONS[operation]
    before = world.files()
    with world.connect(variant) as deployment:
        deployment.facts["host"]["state_free_mib"] = 4096
        plan = make(deployment)
        stuff(world.host, folder, room)
        try:
            deployment.apply(plan, ignore)
        except DdtoolError as error:
            said = error
        else:
            return False
        finally:
            unstuff(world.host, folder)
    assert said.exit_code in (1, 4) and said.hint, said
    assert "no space left" in said.message and folder in said.message, said
    assert world.files() == before
    world.recover((operation, room, said.message))
    return True


STATE = "/var/lib/ddtool"
ROOM_KIB = (0, 8, 32, 128, 400, 1200)


def test_full_site_packages(world: World, faults: ModuleType) -> None:
    host = world.host
    folder = output(host, f"echo {SITE}/managers")
    output(host, f"cp -a {folder} /run/managers")
    faults.fill(host, folder, "64k")
    output(host, f"cp -a /run/managers/. {folder}/")
    before = world.files()
    stuff(host, folder, 0)
    make, variant = OPERATIONS["diag enable"]
    with world.connect(variant) as deployment, pytest.raises(DdtoolError) as caught:
        deployment.apply(make(deployment), ignore)
    assert "no space left" in str(caught.value) and folder in str(caught.value)
    assert caught.value.hint
    assert world.files() == before
    world.recover("full site-packages")
    unstuff(host, folder)
    world.change("diag enable")
    world.change("restore")
    world.recover("room again")
    output(host, f"systemctl stop {UNIT}")
    faults.unmount(host, folder)
    output(host, f"systemctl start {UNIT}; rm -r /run/managers")


def test_full_root(boot: Callable[..., Sandbox], world: World) -> None:
    host = boot("full-root", disk="64m")
    mini.install(host)
    small = World(host)
    small.sets = world.sets
    assert refused(small, "deploy A", "/", 0)
    small.change_without_preflight("deploy A")
    assert sum(refused(small, "deploy B", "/", room) for room in ROOM_KIB) >= 2
    small.change_without_preflight("deploy B")
    down(host.name)


def test_full_state_folder(host: Sandbox, world: World, faults: ModuleType) -> None:
    """Before a first deploy, and before a second one."""
    world.change("remove")
    faults.fill(host, STATE, "8m")
    done = ddtool("deploy", PROFILE, "--yes", *sets("A"))
    assert done.returncode == 4 and "next: free at least" in done.stderr, done.stderr
    assert sum(refused(world, "deploy A", STATE, room) for room in ROOM_KIB) >= 2
    world.change_without_preflight("deploy A")
    assert sum(refused(world, "deploy B", STATE, room) for room in ROOM_KIB) >= 2
    world.change_without_preflight("deploy B")
    world.change("remove")
    faults.unmount(host, STATE)
