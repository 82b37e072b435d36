"""The mini service as a process of this machine, without a host around it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support import mini

READY_S = 60.0


@contextmanager
def served(folder: Path, name: str, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """The port on which it answers, on 127.0.0.1. Its log is `folder/name.log`."""
    port = free_port()
    words = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), "--tp-size", "1", *flags]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            words,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {}), "PYTHONPATH": str(mini.HERE / "dist")},
        )
    try:
        wait(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the mini service ended while it started"
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the mini service did not come up")
