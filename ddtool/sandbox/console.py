"""Running things inside without sshd: the sandbox's console. Works with the network cut and sshd dead."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from ddtool.errors import DdtoolError
from ddtool.sandbox.records import Sandbox, load

_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
)


def exec_inside(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    input: str | None = None,  # as subprocess.run calls it
    user: str | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` inside as `user` (root) and return its status and output, whatever the status.

    Raises subprocess.TimeoutExpired after `timeout` seconds, when all that it started is dead, and
    DdtoolError when the sandbox is off.
    """
    command = _command(sandbox, argv, user)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # nsenter's child is in its process group, and would outlive it
    )
    try:
        stdout, stderr = process.communicate(input, timeout)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)


def shell(sandbox: Sandbox) -> int:
    """An interactive root shell on a terminal of the sandbox's own; its exit status."""
    terminal = [
        "env",
        f"TERM={os.environ.get('TERM', 'dumb')}",
        "script",
        "-q",
        "-e",
        "-c",
        "bash -l",
        "/dev/null",
    ]
    return subprocess.run(_command(sandbox, terminal, None), check=False).returncode


def _command(sandbox: Sandbox, argv: Sequence[str], user: str | None) -> list[str]:
    current = load(sandbox.name)  # PID 1 is another one after a reboot
    if not current or not current.pid:
        raise DdtoolError(f"sandbox {sandbox.name} is off", hint=f"ddtool sandbox up {sandbox.name}")
    enter = ["nsenter", "-t", str(current.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
    become = ["runuser", "-u", user, "--"] if user else []
    return [*enter, "env", "-i", *_ENVIRONMENT, *become, *argv]
