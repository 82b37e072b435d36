"""A small ssh agent for the ssh of a jump host: keys that a person has unlocked here, then those of the agent behind.

So a passphrase, or a key without one, is never written down, put into an environment or handed to another program.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from paramiko import PKey

LIST, LISTED, SIGN, SIGNED, FAILURE = 11, 12, 13, 14, 5  # draft-miller-ssh-agent
LARGEST = 256 << 10  # as OpenSSH's agent
TIMEOUT_S = 60.0
_RSA_FLAGS = {0: "ssh-rsa", 2: "rsa-sha2-256", 4: "rsa-sha2-512"}


class _Broken(Exception):
    """The other end spoke no agent protocol, or went away."""


@contextlib.contextmanager
def serving(keys: Sequence[PKey], behind: str | None) -> Iterator[str]:
    """The socket of an agent that holds `keys`; everything else is for the agent at the socket `behind`."""
    with tempfile.TemporaryDirectory(prefix="ddtool-") as folder:  # 0700
        path = str(Path(folder, "agent"))
        with _Server(path, keys, behind) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield path
            finally:
                server.shutdown()
                thread.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, keys: Sequence[PKey], behind: str | None) -> None:
        super().__init__(path, _Client)
        self.keys = {key.asbytes(): key for key in keys}
        self.behind = behind


class _Client(socketserver.BaseRequestHandler):
    """One program that asks. What it asks is answered in turn."""

    server: _Server

    def handle(self) -> None:
        behind: socket.socket | None = None
        self.request.settimeout(TIMEOUT_S)
        try:
            if self.server.behind:
                with contextlib.suppress(OSError):  # an agent that is gone has no keys
                    behind = _connected(self.server.behind)
            while True:
                _send(self.request, self._answer(_receive(self.request), behind))
        except (_Broken, OSError):
            return
        finally:
            if behind:
                behind.close()

    def _answer(self, message: bytes, behind: socket.socket | None) -> bytes:
        if message[0] == LIST:
            return self._listed(_asked(behind, message))
        if message[0] == SIGN:
            blob, rest = _string(message[1:])
            if key := self.server.keys.get(blob):
                data, flags = _string(rest)
                algorithm = _RSA_FLAGS.get(int.from_bytes(flags[:4], "big"))
                name = algorithm if key.get_name() == "ssh-rsa" else None
                return bytes([SIGNED]) + _packed(key.sign_ssh_data(data, name).asbytes())
        return _asked(behind, message)

    def _listed(self, others: bytes) -> bytes:
        count, rest = 0, b""
        if others[0] == LISTED:
            count, rest = int.from_bytes(others[1:5], "big"), others[5:]
        own = [_packed(blob) + _packed(b"unlocked by ddtool") for blob in self.server.keys]
        return bytes([LISTED]) + (len(own) + count).to_bytes(4, "big") + b"".join(own) + rest


def _connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(TIMEOUT_S)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def _asked(behind: socket.socket | None, message: bytes) -> bytes:
    if behind is None:
        return bytes([FAILURE])
    _send(behind, message)
    return _receive(behind)


def _packed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _string(data: bytes) -> tuple[bytes, bytes]:
    """The string at the beginning, and what follows it."""
    size = 4 + int.from_bytes(data[:4], "big")
    if size > len(data):
        raise _Broken
    return data[4:size], data[size:]


def _send(sock: socket.socket, message: bytes) -> None:
    sock.sendall(_packed(message))


def _receive(sock: socket.socket) -> bytes:
    size = int.from_bytes(_read(sock, 4), "big")
    if not 0 < size <= LARGEST:
        raise _Broken
    return _read(sock, size)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise _Broken
        data += part
    return data
