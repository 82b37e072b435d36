"""A host over ssh. Reached exactly as `ssh NAME` reaches it, but without a question to anybody."""

from __future__ import annotations

import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import paramiko

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.auth import authenticate
from ddtool.transport.dial import Deadline, Report, alive_interval_s, dial
from ddtool.transport.handshake import end, handshake
from ddtool.transport.keyfiles import Ask, ask_at_terminal
from ddtool.transport.proxy import Proxy, carried
from ddtool.transport.sshconfig import SshConfig, resolve

CONNECT_TIMEOUT_S = 15.0
OPEN_TIMEOUT_S = 30.0
STDERR_TAIL = 64 << 10
MAX_SEND = 1 << 20
# How long stdout or stdin may keep us from emptying stderr. Both share one window with it on the wire.
SLICE_S = 0.2


def connect(
    name: str,
    *,
    ssh_config: str | None = None,
    connect_timeout_s: float | None = None,
    environ: Mapping[str, str] = os.environ,
    ask: Ask = ask_at_terminal,
) -> SshHost:
    """Log in at `name`: a Host of the ssh configuration, user@host, or ssh://user@host:port.

    `ssh_config` is a file for ssh's -F. `connect_timeout_s` bounds name resolution, TCP, banner, key exchange and
    login together; by default it is the configuration's ConnectTimeout, or 15 s. `ask` gets a passphrase from a
    person, whose time does not count. Raises a HostError that says what failed, why, and what to type next.
    """
    config = resolve(name, ssh_config, environ=environ, timeout_s=connect_timeout_s or CONNECT_TIMEOUT_S)
    return log_in(config, connect_timeout_s=connect_timeout_s, environ=environ, ask=ask)


def log_in(
    config: SshConfig,
    *,
    connect_timeout_s: float | None = None,
    environ: Mapping[str, str] = os.environ,
    ask: Ask = ask_at_terminal,
    report: Report = lambda step, detail: None,
) -> SshHost:
    """connect() for a name that has been resolved; `report` hears of each step as it is done."""

    def session(open_socket: Callable[[Deadline], socket.socket], report: Report) -> paramiko.Transport:
        deadline = Deadline(connect_timeout_s or config.connect_timeout_s or CONNECT_TIMEOUT_S)
        transport = handshake(open_socket(deadline), config, deadline, report)
        try:
            identity = authenticate(transport, config, deadline, ask)
        except BaseException:
            end(transport)
            raise
        report("login", f"{config.user}, with {identity or 'no key'}")
        transport.set_keepalive(alive_interval_s(config))
        return transport

    def through(proxy: Proxy) -> SshHost:
        def tell(step: str, detail: str) -> None:
            if step == "key exchange":  # no earlier: until then it may not have reached the host
                report("proxy", shlex.join(proxy.argv))
            report(step, detail)

        transport = session(lambda _: proxy.sock, tell)
        proxy.established()
        return SshHost(config, transport, proxy)

    if config.proxy_jump or config.proxy_command:
        return carried(config, environ, ask, through)
    return SshHost(config, session(lambda deadline: dial(config, deadline, report), report))


class SshHost:
    """One ssh connection; every command is a channel of it. Not thread-safe."""

    def __init__(self, config: SshConfig, transport: paramiko.Transport, proxy: Proxy | None = None) -> None:
        self.name = config.name
        self.user = config.user
        self.where = config.where
        self.become = True
        self.state = "/var/lib/ddtool"
        self.run = "/run/ddtool"
        self.config = config
        self._transport = transport
        self._proxy = proxy

    def open(self, command: str) -> SshChannel:
        """Start `command`, as it is, with the login shell. Raises ConnectionLost or HostError."""
        try:
            with self._watchdog():
                # paramiko's own timeout, an hour if none is given, must not come before the watchdog's: it says less.
                channel = self._transport.open_session(timeout=2 * OPEN_TIMEOUT_S)
                channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._open_failed(error) from error
        return SshChannel(self, channel)

    def close(self) -> None:
        end(self._transport)
        if self._proxy:
            self._proxy.close()

    @property
    def alive(self) -> bool:
        return self._transport.is_active()

    def survives(self) -> bool:
        """Whether the connection outlives a channel's end. When it breaks, channels end a moment before."""
        self._transport.join(0.5)
        return self._transport.is_alive()

    def lost(self, during: str) -> ConnectionLost:
        """The error for a link that broke, with the reason that paramiko or the proxy gave."""
        end(self._transport)  # it is dead, but its thread may be about to note why
        cause = self._transport.get_exception()
        said = self._proxy.stderr_tail() if self._proxy else ""
        return ConnectionLost(
            f"{self.name}: the connection was lost {during}",
            why=said or (str(cause) if cause and str(cause) else "the link was closed or stayed silent"),
            hint="run the command again; what runs on the host goes on",
        )

    @contextmanager
    def _watchdog(self) -> Iterator[None]:
        """paramiko waits without bound for the answer to a request: break the connection when none comes."""
        timer = threading.Timer(OPEN_TIMEOUT_S, self._transport.close)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _open_failed(self, error: Exception) -> HostError:
        if not self._transport.is_active():
            return self.lost("before a command could start")
        if isinstance(error, paramiko.ChannelException):
            return HostError(
                f"{self.name}: the host refuses another session",
                why=str(error),
                hint="raise MaxSessions in its sshd_config, or see whether the account may run commands",
            )
        return HostError(
            f"{self.name}: the host does not run the command", why=str(error), hint=self.config.ssh
        )


class SshChannel:
    """A command on the host. stderr is emptied while stdout or stdin waits, or its writer would stall."""

    def __init__(self, host: SshHost, channel: paramiko.Channel) -> None:
        self._host = host
        self._channel = channel
        self._stderr = bytearray()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        self._channel.settimeout(SLICE_S)
        while view:
            try:
                sent = self._channel.send(view[:MAX_SEND].tobytes())
            except TimeoutError:
                self._drain_stderr()
                continue
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._gone() from error
            if not sent or not self._host.alive:  # paramiko drops data for a dead connection without a word
                raise self._gone()
            view = view[sent:]

    def recv(self, size: int, timeout: float) -> bytes:
        end_at = time.monotonic() + timeout
        while True:
            self._drain_stderr()
            left = end_at - time.monotonic()
            self._channel.settimeout(max(0.0, min(SLICE_S, left)))
            try:
                data = self._channel.recv(size)
            except TimeoutError:
                if left <= SLICE_S:
                    raise
                continue
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._host.lost("while the command ran") from error
            if not data and not self._ended_cleanly():
                raise self._host.lost("while the command ran")
            return data

    def stderr_tail(self) -> str:
        self._drain_stderr()
        return self._stderr.decode(errors="replace")

    def exit_status(self, timeout: float) -> int | None:
        end_at = time.monotonic() + timeout
        while True:
            left = end_at - time.monotonic()
            if self._channel.status_event.wait(max(0.0, min(SLICE_S, left))):
                break
            self._drain_stderr()
            if left <= SLICE_S:
                return None
        self._drain_stderr()
        return self._channel.exit_status if self._channel.exit_status >= 0 else None

    def close(self) -> None:
        with suppress(EOFError, OSError, paramiko.SSHException):  # the link broke first: that is closed too
            self._channel.close()

    def _drain_stderr(self) -> None:
        self._channel.settimeout(0.0)
        while self._channel.recv_stderr_ready():
            self._stderr += self._channel.recv_stderr(1 << 16)
            del self._stderr[:-STDERR_TAIL]

    def _ended_cleanly(self) -> bool:
        """Whether the end of stdout is the command's end. paramiko reports a broken link in the same way."""
        if self._channel.eof_received or self._channel.exit_status >= 0:
            return True
        return self._host.survives()

    def _gone(self) -> ConnectionLost:
        if not self._ended_cleanly():
            return self._host.lost("while sending")
        return ConnectionLost(
            f"{self._host.name}: the command on the host has ended", why=self.stderr_tail().strip() or None
        )
