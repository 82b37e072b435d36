"""The seam between ddtool and a machine: run one command there and talk to it over its stdin and stdout."""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """A running command. Not thread-safe."""

    def send(self, data: bytes) -> None:
        """Write all of `data` to the command's stdin. Raises ConnectionLost."""

    def recv(self, size: int, timeout: float) -> bytes:
        """1 to `size` bytes of stdout, b"" at its end. Raises TimeoutError, ConnectionLost."""

    def stderr_tail(self) -> str:
        """What the command has written to stderr so far (the last 64 KiB)."""

    def exit_status(self, timeout: float) -> int | None:
        """The exit status, or None while it runs or when the link broke before it came."""

    def close(self) -> None: ...


class Host(Protocol):
    name: str  # as the operator typed it
    user: str  # the login
    where: str  # how it was reached, such as root@10.0.0.7:22
    become: bool  # the agent must reach root through `sudo -n` when the login is not root
    state: str  # where the agent keeps its state, /var/lib/ddtool
    run: str  # where running services leave proofs, /run/ddtool

    def open(self, command: str) -> Channel:
        """Start `command` with the login shell. Raises a HostError that says what failed."""

    def close(self) -> None: ...
