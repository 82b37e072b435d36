"""ddtool as its user runs it: the installed command in a process of its own, or in this one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DDTOOL = [str(Path(sys.executable).with_name("ddtool"))]


def ddtool(
    *args: str, env: dict[str, str] | None = None, timeout: float = 110
) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal; whatever the exit status."""
    return subprocess.run(
        [*DDTOOL, *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )


def ok(*args: str, env: dict[str, str] | None = None, timeout: float = 110) -> str:
    """stdout of a command that must succeed."""
    done = ddtool(*args, env=env, timeout=timeout)
    assert done.returncode == 0, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout


def data(*args: str, env: dict[str, str] | None = None, timeout: float = 110) -> dict[str, Any]:
    """The JSON object of a command that must succeed."""
    parsed: dict[str, Any] = json.loads(ok(*args, "--json", env=env, timeout=timeout))
    return parsed


class Said(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def here(*args: str) -> Said:
    """The command in this process, which patches of a test reach: starting Python takes longer than most commands."""
    from ddtool.cli import main

    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ddtool", *args])
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Said(status, out.getvalue(), err.getvalue())
