"""An ssh session over a socket: banner, key exchange, host key. Then auth.py logs in."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Any

import paramiko
from paramiko.packet import Packetizer

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport import hostkey, knownhosts
from ddtool.transport.dial import Deadline, Report
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.text import last_lines, printable

# paramiko logs tracebacks of errors that it also raises. Without a handler Python prints them to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Transport(paramiko.Transport):
    """Offers exactly `host_key_algorithms`, in order. paramiko itself puts every certificate behind every bare key."""

    host_key_algorithms: tuple[str, ...] = ()

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return self.host_key_algorithms


class _Packetizer(Packetizer):
    """Keeps the lines before the banner: an sshd says there that it is full, another service says what it is."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.said = ""
        self._sock = sock

    def readline(self, timeout: float) -> str:
        line = super().readline(timeout)
        if not line.startswith("SSH-") and len(self.said) < 1000:
            self.said += f"{line}\n"
        return line

    def write_all(self, out: Any) -> None:
        try:
            super().write_all(out)
        except EOFError:  # the other end has spoken and left before it heard us
            with contextlib.suppress(OSError):
                self._sock.settimeout(0.0)
                self.said += self._sock.recv(1000).decode(errors="replace")
            raise


def handshake(
    sock: socket.socket, config: SshConfig, deadline: Deadline, report: Report
) -> paramiko.Transport:
    """An encrypted session with a host whose key has been checked, not yet logged in.

    Raises ConnectTimeout naming the phase, HostKeyUnknown, HostKeyChanged, ConnectionLost, HostError.
    """
    transport = _Transport(sock, packetizer_class=_Packetizer)
    try:
        files = knownhosts.load(config.known_hosts)
        entries = [*files, *hostkey.told(config, deadline)]
        _restrict(transport, config)
        supported = transport.get_security_options().key_types
        transport.host_key_algorithms = hostkey.preferred_algorithms(config, entries, supported)
        _exchange_keys(transport, config, deadline)
        report("key exchange", printable(f"{transport.remote_version}, {transport.host_key_type}"))
        host = hostkey.shown(transport.get_remote_server_key())
        entry = hostkey.verify(config, [*files, *hostkey.told(config, deadline, host)], host)
        report("host key", f"{host}; {'its authority is' if entry.marker else 'known'} in {entry.place}")
    except BaseException:
        end(transport)
        raise
    return transport


def end(transport: paramiko.Transport) -> None:
    """Close the session and wait for its thread: paramiko's close() does not."""
    with contextlib.suppress(OSError):
        transport.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread, which otherwise looks up every 0.1 s
    transport.packetizer.complete_handshake()  # ends its timer, a thread, which a failed handshake leaves running
    transport.close()
    transport.sock.close()
    if transport.ident is not None:  # else it was never started
        transport.join(5.0)


def _restrict(transport: paramiko.Transport, config: SshConfig) -> None:
    """Leave out what the ssh configuration forbids, as far as something usable is left."""
    options = transport.get_security_options()
    for ours, attribute in (("kex", "kex"), ("ciphers", "ciphers"), ("macs", "digests")):
        supported: tuple[str, ...] = tuple(getattr(options, attribute))
        allowed = config.algorithms.get(ours, supported)
        usable = tuple(name for name in supported if name in allowed)
        if not usable:
            raise hostkey.no_algorithm(config, ours, allowed, supported)
        setattr(options, attribute, usable)


def _exchange_keys(transport: paramiko.Transport, config: SshConfig, deadline: Deadline) -> None:
    done = threading.Event()
    transport.banner_timeout = transport.handshake_timeout = deadline.remaining()
    transport.start_client(event=done)
    finished = done.wait(deadline.remaining())
    if finished and transport.is_active():
        return
    if not finished or deadline.passed:
        raise deadline.error(config, _phase(transport))
    cause = transport.get_exception()
    if isinstance(cause, paramiko.ssh_exception.IncompatiblePeer):
        raise HostError(
            f"{config.where}: no algorithm in common", why=printable(str(cause)), hint=f"{config.ssh} -v"
        ) from cause
    raise _ended(transport, config, cause)


def _phase(transport: paramiko.Transport) -> str:
    if not transport.remote_version:
        return "connected, but no SSH banner came: not an sshd, or one that is overloaded"
    return f"connected to {printable(transport.remote_version)}, but the key exchange did not end"


def _ended(transport: paramiko.Transport, config: SshConfig, cause: Exception | None) -> ConnectionLost:
    moment, why = "during the key exchange", printable(str(cause or ""))
    if not transport.remote_version:
        said = last_lines(getattr(transport.packetizer, "said", ""), 3)
        moment, why = "before its SSH banner", f"it said: {said}" if said else ""
    return ConnectionLost(
        f"{config.where} ended the connection {moment}",
        why=why or "it closed the connection",
        hint=f"{config.ssh} -v   # a full sshd (MaxStartups), a ban, or another service on that port",
    )
