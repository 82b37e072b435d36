"""One deadline for a whole connection, and the TCP part of it."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ddtool.errors import ConnectionRefused, ConnectTimeout, HostError, NameNotResolved
from ddtool.transport.sshconfig import SshConfig, bracketed

# Called as each step of a connection is done, and what came of it: first name and tcp, or proxy; then key exchange,
# host key, login.
Report = Callable[[str, str], None]

_FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


class Deadline:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, at least 1 ms: zero means "do not wait" or "for ever" to many functions."""
        return max(0.001, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The time of a person who types is not the host's."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - began

    def error(self, config: SshConfig, phase: str) -> ConnectTimeout:
        return ConnectTimeout(
            f"{config.name}: no connection within {self.seconds:g} s",
            why=phase,
            hint=f"{config.ssh} -v   # shows how far it gets; ConnectTimeout in ssh_config allows more time",
        )


def dial(config: SshConfig, deadline: Deadline, report: Report) -> socket.socket:
    """A TCP connection to the host; each of its addresses is tried in the resolver's order.

    Raises NameNotResolved, ConnectionRefused, ConnectTimeout, or HostError for another network error.
    """
    addresses = _addresses(config, deadline)
    report("name", f"{config.hostname} is {', '.join(address[4][0] for address in addresses)}")
    failures: list[OSError] = []
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            if config.bindaddress:
                sock.bind((config.bindaddress, 0))
            # A share for each address: an unreachable IPv6 must not use up the time of a working IPv4.
            sock.settimeout(deadline.remaining() / (len(addresses) - index))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failures.append(error)
            continue
        _tune(sock, config)
        report("tcp", f"connected to {bracketed(address[0])}:{address[1]}")
        return sock
    raise _explain(config, deadline, failures)


def _addresses(config: SshConfig, deadline: Deadline) -> list[Any]:
    """getaddrinfo under the deadline. It cannot be cancelled: past the deadline its daemon thread is left alone."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        family = _FAMILIES.get(config.addressfamily, socket.AF_UNSPEC)
        try:
            answers.put(socket.getaddrinfo(config.hostname, config.port, family, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, name="ddtool-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.remaining())
    except queue.Empty:
        raise deadline.error(
            config, f"the name {config.hostname} was not resolved; no answer from DNS"
        ) from None
    if isinstance(answer, Exception):
        alias = "" if config.hostname == config.name else f" (HostName of {config.name})"
        raise NameNotResolved(
            f"cannot resolve {config.hostname}{alias}",
            why=getattr(answer, "strerror", None) or str(answer),
            hint=f"getent hosts {config.hostname}   # or give it a HostName in the ssh configuration",
        )
    return list(answer)


def _tune(sock: socket.socket, config: SshConfig) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Keepalives that are not acknowledged end the link after this time, and not in a quarter of an hour.
        silence_ms = int(alive_interval_s(config) * max(1, config.server_alive_count) * 1000)
        with contextlib.suppress(OSError):  # not every kernel that has the name takes the option
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms)


def alive_interval_s(config: SshConfig) -> int:
    """ServerAliveInterval, or 15 s: ddtool follows logs for hours, and must notice a dead link."""
    return config.server_alive_interval_s or 15


def _explain(config: SshConfig, deadline: Deadline, failures: list[OSError]) -> HostError:
    target = config.where
    if any(isinstance(error, ConnectionRefusedError) for error in failures):
        return ConnectionRefused(
            f"{target} refuses connections",
            why="nothing listens on that port, or a firewall answers for it",
            hint=f"{config.ssh} -v   # and see on the host's console whether sshd runs, and on which port",
        )
    timed_out = [
        error for error in failures if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT
    ]
    if timed_out or not failures:
        return deadline.error(
            config, f"no answer to a TCP connection at {target}: host down, or a firewall drops it"
        )
    return HostError(
        f"cannot connect to {target}", why=failures[-1].strerror or str(failures[-1]), hint=f"{config.ssh} -v"
    )
