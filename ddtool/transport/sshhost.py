"""A host over ssh, logged in: commands are channels of one connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import paramiko

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.handshake import end
from ddtool.transport.proxy import Proxy
from ddtool.transport.sshconfig import SshConfig

OPEN_TIMEOUT_S = 30.0
STDERR_TAIL = 64 << 10
MAX_SEND = 1 << 20
# How long stdout or stdin may keep us from emptying stderr. Both share one window with it on the wire.
SLICE_S = 0.2


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
        if isinstance(error, paramiko.ChannelException):
            return HostError(
                f"{self.name}: the host refuses another session",
                why=str(error),
                hint="raise MaxSessions in its sshd_config, or see whether the account may run commands",
            )
        # A write that fails knows of a broken link before paramiko's reading thread does.
        if isinstance(error, EOFError) or not self.survives():
            return self.lost("before a command could start")
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
            except EOFError as error:  # of the link, before paramiko's reading thread knows
                raise self._host.lost("while sending") from error
            except (OSError, paramiko.SSHException) as error:
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
