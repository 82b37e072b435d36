"""ddtool as its user runs it: the installed command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
