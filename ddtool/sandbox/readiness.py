"""Waiting for a sandbox: ssh answers, and systemd has started all that it starts at boot."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from ddtool.errors import DdtoolError
from ddtool.sandbox.console import exec_inside
from ddtool.sandbox.records import Sandbox, load, state_root

_POLL_S = 0.03


def wait(name: str, timeout: float) -> Sandbox:
    """The sandbox, ready. Raises DdtoolError with the last words of what failed."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        sandbox = load(name)
        if not (sandbox and sandbox.supervisor.alive()):
            words = tail(state_root() / name / "supervisor.log")
            raise DdtoolError(f"the supervisor of sandbox {name} ended", why=words)
        if not sandbox.init:
            raise DdtoolError(f"sandbox {name} did not stay up", why=tail(sandbox.console_log))
        if _ssh_answers(sandbox) and _booted(sandbox, end - time.monotonic()):
            return sandbox
        time.sleep(_POLL_S)
    raise DdtoolError(
        f"sandbox {name} is not ready after {timeout:g} s", why=tail(state_root() / name / "console.log")
    )


def tail(path: Path, size: int = 1500) -> str:
    """The last `size` characters of a file, "" when there is none."""
    try:
        return path.read_text(errors="replace")[-size:]
    except OSError:
        return ""


def _ssh_answers(sandbox: Sandbox) -> bool:
    try:
        with socket.create_connection((sandbox.address, sandbox.port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _booted(sandbox: Sandbox, timeout: float) -> bool:
    try:
        state = exec_inside(sandbox, ["systemctl", "is-system-running", "--wait"], timeout=max(timeout, 1))
    except subprocess.TimeoutExpired:
        return False
    return state.stdout.strip() in ("running", "degraded")
