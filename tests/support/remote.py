"""Reaching a sandbox as its user would, with the system's own ssh; and waiting for things."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ddtool.sandbox import Sandbox

T = TypeVar("T")


def ssh_argv(host: Sandbox, command: str, options: Sequence[str] = (), user: str = "root") -> list[str]:
    return ["ssh", "-F", str(host.ssh_config), "-l", user, *options, host.name, command]


def ssh(
    host: Sandbox, command: str, *, options: Sequence[str] = (), user: str = "root", input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `command` there and return what came of it, whatever the status (255: ssh itself failed)."""
    argv = ssh_argv(host, command, options, user)
    stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **stdin)


def output(host: Sandbox, command: str, **options: object) -> str:
    """What `command` prints there, stripped. It must succeed."""
    result = ssh(host, command, **options)
    assert result.returncode == 0, (command, result.returncode, result.stdout, result.stderr)
    return result.stdout.strip()


def until(condition: Callable[[], T], timeout: float = 15, step: float = 0.05) -> T:
    """The first true value of `condition`. Fails after `timeout` seconds, showing the last value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"still {value!r} after {timeout} s"
        time.sleep(step)
