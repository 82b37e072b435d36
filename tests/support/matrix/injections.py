"""What happens to a host, a link or an operator in the middle of a command. `clear` ends it; each can come again."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support import doctored, faults
from support.matrix.stages import Stage, operator
from support.matrix.state import STATE
from support.remote import until

from ddtool.sandbox import control, find

HELD, KILLED, THROUGHOUT = "held", "killed", "throughout"
STEP_S = 7200.0
COPY = "/dev/shm/state"


@dataclass
class Case:
    """One run of a command that something happens to."""

    stage: Stage
    command: tuple[str, ...]
    env: dict[str, str]
    operator: subprocess.Popen[str] | None = None
    chance: random.Random = field(default_factory=random.Random)
    notes: dict[str, Any] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)


Act = Callable[[Case], None]


def nothing(case: Case) -> None:
    return


@dataclass(frozen=True)
class Injection:
    """`prepare` before the command; `inject` while the executor stands (or at the start); `clear` when it is over."""

    name: str
    inject: Act
    clear: Act = nothing
    prepare: Act = nothing
    when: str = HELD
    points: int = 1
    ends_runs: bool = False
    """It ends, or may start, the service itself."""


# Operators and links


def kill_operator(case: Case) -> None:
    assert case.operator
    case.operator.send_signal(signal.SIGKILL)


def cut(case: Case) -> None:
    faults.cut(case.stage.host)


def stall(case: Case) -> None:
    faults.stall(case.stage.host)


def healthy_link(case: Case) -> None:
    faults.clear(case.stage.host)


def delay(case: Case) -> None:
    faults.delay(case.stage.host, 0.1)


def lose_packets(case: Case) -> None:
    """What loss is to a TCP connection: now and then nothing comes for a while, then all of it."""
    chance, host = random.Random(case.chance.random()), case.stage.host

    def bursts() -> None:
        while not case.over.wait(chance.uniform(0.05, 0.5)):
            control.ask(host, "stall", True)
            case.over.wait(chance.choice((0.2, 0.4, 0.8, 1.6)))
            control.ask(host, "stall", False)

    threading.Thread(target=bursts, daemon=True).start()


def end_sshd(case: Case) -> None:
    case.stage.inside("systemctl stop ssh; kill -9 $(ps -C sshd -o pid=) || true")
    until(lambda: not case.stage.inside("ps -C sshd -o pid= || true"))


def start_sshd(case: Case) -> None:
    case.stage.inside("systemctl reset-failed ssh; systemctl start ssh")


def second_operator(case: Case) -> None:
    done = subprocess.run(
        operator(case.stage, ("restart", "--yes")),
        env=case.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    case.notes["second"] = (
        f"exit {done.returncode}: {(done.stderr.strip().splitlines() or ['-'])[-2:][0][:160]}"
    )
    assert done.returncode in (0, 2, 5, 7), done.stderr


# The host


def power_cut(case: Case) -> None:
    faults.power_reset(case.stage.host)


def reboot(case: Case) -> None:
    """Orderly: systemd stops everything, the executor too, which undoes meanwhile."""
    name = case.stage.host.name
    before = find(name).pid
    case.stage.inside("systemctl --no-block reboot")
    until(lambda: find(name).pid not in (0, before), 90)
    faults.power_on(case.stage.host)


def own_state_disk(case: Case) -> None:
    """The state folder gets a small file system of its own, with what is in it."""
    case.stage.inside(
        f"rm -rf {COPY}; mkdir -p {STATE}; cp -a {STATE} {COPY}; mount -t tmpfs -o size=512m,mode=700 state {STATE}; "
        f"cp -a {COPY}/. {STATE}/"
    )


def common_disk(case: Case) -> None:
    """Back on the disk of all. A service started meanwhile keeps the small one busy, so it is started again."""
    faults.unstuff(case.stage.host, STATE)
    unit = case.stage.unit
    case.stage.inside(
        f"set -e; rm -rf {COPY}; cp -a {STATE} {COPY}; again=; "
        f"umount {STATE} 2> /dev/null || {{ again=1; systemctl stop {unit}; umount {STATE}; }}; "
        f"rm -rf {STATE}; cp -a {COPY} {STATE}; rm -rf {COPY}; rmdir --ignore-fail-on-non-empty {STATE}; "
        f'[ -z "$again" ] || systemctl start {unit}'
    )


def fill_state(case: Case) -> None:
    faults.stuff(case.stage.host, STATE)


def fill_root(case: Case) -> None:
    faults.stuff(case.stage.host, "/root")


def empty_root(case: Case) -> None:
    faults.unstuff(case.stage.host, "/root")


def fill_run(case: Case) -> None:
    faults.stuff(case.stage.host, "/run")


def empty_run(case: Case) -> None:
    faults.unstuff(case.stage.host, "/run")


def read_only(case: Case) -> None:
    for folder in (STATE, "/etc/systemd/system", "/opt/mini"):
        faults.read_only(case.stage.host, folder)


def step_forward(case: Case) -> None:
    doctored.set_clock(case.stage.host, STEP_S)


def step_back(case: Case) -> None:
    doctored.set_clock(case.stage.host, -STEP_S)


def right_clock(case: Case) -> None:
    doctored.right_clock(case.stage.host)


def vacuum(case: Case) -> None:
    case.stage.inside("journalctl -q --rotate; journalctl -q --vacuum-time=1s")


def crash_service(case: Case) -> None:
    """systemd wants to start it again, 0.2 s later."""
    pid = case.stage.see()["pid"]
    if not pid:
        case.notes["missed"] = "nothing was running"
        return
    case.stage.inside(f"kill -9 {pid}")
    time.sleep(1.0)


INJECTIONS = {
    item.name: item
    for item in (
        Injection("operator killed", kill_operator),
        Injection("executor killed", nothing, when=KILLED, points=2),
        Injection("link cut", cut),
        Injection("link stalled", stall, healthy_link),
        Injection("link delayed", delay, healthy_link, when=THROUGHOUT),
        Injection("link lossy", lose_packets, healthy_link, when=THROUGHOUT),
        Injection("sshd gone", end_sshd, start_sshd),
        Injection("second operator", second_operator),
        Injection("host rebooted", reboot, ends_runs=True),
        Injection("power cut", power_cut, ends_runs=True, points=2),
        Injection("disk full: root", fill_root, empty_root),
        Injection("disk full: state", fill_state, common_disk, prepare=own_state_disk),
        Injection("disk full: /run", fill_run, empty_run),
        Injection("read-only", read_only, healthy_link),
        Injection("clock forward", step_forward, right_clock),
        Injection("clock back", step_back, right_clock),
        Injection("journal vacuumed", vacuum),
        Injection("systemd restarts the unit", crash_service, ends_runs=True),
    )
}
