"""Runs as the first process of a kernel whose power will be cut: `python power_inside.py ORDER`.

First what the last cut left is recovered and checked, then a transaction begins. At the act that was ordered it says
so and does no more; the power goes then. What it says is one JSON object a line, after "POWER ".
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from support import plain_host, trap
from support.plain_host import PlainHost

from ddtool.agent import executor

HOST = Path("/mnt/disk/host")


def say(**about: Any) -> None:
    sys.stdout.write("POWER " + json.dumps(about) + "\n")
    sys.stdout.flush()


def wait_for_the_cut() -> NoReturn:
    while True:
        time.sleep(3600)


class Stop(trap.Trap):
    def spring(self, act: str) -> None:
        self.off = True
        say(event="cut", act=act, within=trap.agent_functions()[:3])
        wait_for_the_cut()


def stop_at(at: int) -> None:
    stop = Stop("txn", at)
    sys.addaudithook(stop.audit)
    os.fsync, os.write, os.pwrite = stop.fsync, stop.write, stop.pwrite


def recovered(host: PlainHost, number: int, expected: dict[str, Any]) -> str:
    """How the transaction that was cut ended, once the next command has settled it."""
    status = host.run(host.plan("settle", number))
    assert status == 0, "the recovery failed"
    now = host.files()
    host.deployed()
    assert host.left_over() == [], host.left_over()
    assert now in (expected["old"], expected["new"]), {
        path: (expected["old"].get(path), found, expected["new"].get(path)) for path, found in now.items()
    }
    end = "finished" if now == expected["new"] else "undone"
    assert end == "finished" or not expected["reported"], "it had reported success, and is undone"
    return end


def main(order: dict[str, Any]) -> None:
    plain_host.without_systemd()
    host, number = PlainHost(HOST), order["number"]
    if order["expected"]:
        say(event="recovered", end=recovered(host, number, order["expected"]))
    chance = random.Random(f"{order['seed']} {number}")
    kind = chance.choice(host.kinds())
    document = host.plan(kind, number + 1)
    say(event="begin", kind=kind, old=host.files(), new=host.after(document))
    host.write(document)
    os.sync()
    stop_at(chance.randint(1, order["acts"]))
    status = executor.run(host.ctx, document["id"])
    say(event="ended", ok=status == 0, temporary=document["temporary"])


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text()))
    except BaseException:
        say(event="failed", why=traceback.format_exc())
    wait_for_the_cut()
