"""This machine as a host, without ssh: for the GPU harness and for fast tests of the agent."""

from __future__ import annotations

import getpass
import os
import select
import subprocess
import tempfile

from ddtool.errors import ConnectionLost


class LocalChannel:
    def __init__(self, command: str) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the channel
        self._process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
        )
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._stdin.fileno(), view) :]
        except BrokenPipeError as error:
            raise ConnectionLost(
                "the agent on this machine has ended", why=self.stderr_tail() or None
            ) from error

    def recv(self, size: int, timeout: float) -> bytes:
        if not select.select([self._stdout], [], [], timeout)[0]:
            raise TimeoutError
        return os.read(self._stdout.fileno(), size)

    def stderr_tail(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 65536))
        return self._stderr.read().decode(errors="replace")

    def exit_status(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        self._stdin.close()
        self._stdout.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


class LocalHost:
    """`become=False`: the agent runs as whoever runs ddtool."""

    def __init__(self, state: str, run: str) -> None:
        self.name = "local"
        self.user = getpass.getuser()
        self.where = "this machine, without ssh"
        self.become = False
        self.state = state
        self.run = run

    def open(self, command: str) -> LocalChannel:
        return LocalChannel(command)

    def close(self) -> None:
        pass
