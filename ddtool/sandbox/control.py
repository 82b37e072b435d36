"""Asking a sandbox's supervisor for something.

One line of JSON each way over a socket in the sandbox's folder: {"verb": ..., "value": ...} is answered by
{"ok": ...} or {"error": ...}. `down` and `power-on` serve the commands. The others (power-off, delay, rate,
cut-after, cut, cuts, stall, refuse, clear) are for tests, which reach them through functions of their own.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from ddtool.errors import DdtoolError
from ddtool.sandbox.records import Sandbox

SOCKET = "control.sock"


def ask(sandbox: Sandbox, verb: str, value: object = None, timeout: float = 30) -> Any:
    """The reply's value. Raises OSError when the supervisor is gone, DdtoolError when it refuses."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(sandbox.state / SOCKET))
        connection.sendall(json.dumps({"verb": verb, "value": value}).encode() + b"\n")
        line = connection.makefile().readline()
    if not line:
        raise ConnectionResetError(f"the supervisor of sandbox {sandbox.name} ended in mid-request")
    reply = json.loads(line)
    if "error" in reply:
        raise DdtoolError(f"sandbox {sandbox.name} refused {verb}", why=reply["error"])
    return reply["ok"]
