"""An agent that can be told to die. Production code knows nothing of it: trap.py hooks Python's audit events.

`agent()` is the zipapp to run in place of the real one; without an order on the host it does what that does.
"""

from __future__ import annotations

import io
import json
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from support.trap import ACTS, CLOCK, FIRED, HELD, ORDER

from ddtool.sandbox import Sandbox, exec_inside
from ddtool.transport.bootstrap import agent_zipapp

EPOCH = (1980, 1, 1, 0, 0, 0)


@cache
def agent() -> bytes:
    """The agent's zipapp with trap.py in it, which runs first."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(agent_zipapp())) as real,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in real.namelist():
            data = real.read(name)
            if name == "__main__.py":
                data = b"import trap\ntrap.install()\n" + data
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)
        archive.writestr(zipfile.ZipInfo("trap.py", EPOCH), Path(__file__).with_name("trap.py").read_bytes())
    return buffer.getvalue()


def arm(
    host: Sandbox,
    verb: str,
    at: int,
    within: str | None = None,
    *,
    hold: bool = False,
    looks: bool = False,
) -> None:
    """The next process of this verb (`serve`, `txn`) dies at its `at`-th act, from 1; with 0 its acts are noted.

    `within`: count only what the agent's function of that name does, itself or through others.
    `hold`: it stands there instead, until `release`. `looks`: programs that only look are acts, too.
    """
    order = {"verb": verb, "at": at, "within": within, "hold": hold, "looks": looks}
    _shell(host, f"rm -f {FIRED} {ACTS} {HELD}; cat > {ORDER}", json.dumps(order))


def release(host: Sandbox) -> None:
    """Let a held process go on."""
    _shell(host, f"rm -f {HELD}")


def set_clock(host: Sandbox, step_s: float) -> None:
    """From now on the wall clock of every agent there is wrong by so many seconds."""
    _shell(host, f"cat > {CLOCK}", str(step_s))


def right_clock(host: Sandbox) -> None:
    _shell(host, f"rm -f {CLOCK}")


def disarm(host: Sandbox) -> None:
    """For an order that no process came to take."""
    _shell(host, f"rm -f {ORDER} {FIRED} {HELD}")


def fired(host: Sandbox) -> dict[str, Any] | None:
    """`{verb, at, act, in: functions of the agent, innermost first}`; None while nothing was killed."""
    text = _shell(host, f"cat {FIRED} 2>/dev/null || true")
    return json.loads(text) if text else None


def acts(host: Sandbox) -> list[dict[str, Any]]:
    """What the process armed with 0 did, in order, each as `fired` describes it."""
    return [json.loads(line) for line in _shell(host, f"cat {ACTS}").splitlines()]


def _shell(host: Sandbox, command: str, input: str | None = None) -> str:
    done = exec_inside(host, ["sh", "-c", command], input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout
