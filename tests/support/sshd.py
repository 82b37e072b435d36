"""A real sshd on loopback with its own keys, and a relay that can cut the connection to it.

It runs as whoever runs the tests and lets only that user in. No container, no system configuration: it starts in
a few hundredths of a second.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SSHD = "/usr/sbin/sshd"
USER = getpass.getuser()


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "", *extra: str) -> Path:
    """A new key pair at `path` and `path`.pub."""
    bits = ["-b", "2048"] if kind == "rsa" else []
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", path.name, "-f", str(path), *extra],
        check=True,
    )
    return path


def public(path: Path) -> str:
    """`type base64` of a key pair."""
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def certify(authority: Path, key: Path, *options: str) -> Path:
    """A certificate for the key pair `key`, beside it. `options` are ssh-keygen's: -h, -n NAMES, -V VALIDITY, …"""
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", key.name, *options, f"{key}.pub"],
        check=True,
        env={**os.environ, "TZ": "UTC"},  # of the dates of -V
    )
    return Path(f"{key}-cert.pub")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Sshd:
    """`host_keys` are key pairs; `authorized` the public keys (lines) that may log in; `options` go to sshd_config.

    A host key is shown with its certificate where there is one.
    """

    def __init__(
        self,
        folder: Path,
        host_keys: list[Path],
        authorized: list[str],
        options: str = "",
        address: str = "127.0.0.1",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        certificates = [path for key in host_keys if (path := Path(f"{key}-cert.pub")).exists()]
        self.log = folder / "sshd.log"
        (folder / "authorized_keys").write_text("".join(f"{line}\n" for line in authorized))
        config = folder / "sshd_config"
        config.write_text(
            "".join(f"HostKey {key}\n" for key in host_keys)
            + "".join(f"HostCertificate {path}\n" for path in certificates)
            + f"ListenAddress {address}\nPidFile none\nStrictModes no\nUsePAM no\n"
            + f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nLogLevel VERBOSE\n"
            + f"SetEnv HOME={folder}\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n{options}"
        )
        for _ in range(5):  # another process may take a port that was free a moment ago
            self.port = free_port()
            words = [SSHD, "-D", "-f", str(config), "-E", str(self.log), "-p", str(self.port)]
            self._process = subprocess.Popen(words)
            if self._listens():
                return
        raise RuntimeError(f"sshd did not start: {self.log.read_text()}")

    def _listens(self) -> bool:
        """Whether it came up. Its log says so: what answers on the port may be another process."""
        while self._process.poll() is None:
            if self.log.exists() and "Server listening on" in self.log.read_text():
                return True
            time.sleep(0.01)
        return False

    def __enter__(self) -> Sshd:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the listener; connections that stand are left to their own processes, which end with them."""
        self._process.terminate()
        self._process.wait(10)


class Relay:
    """Forwards one port to another until `cut()`, or until `limit` bytes have passed in all, both ways together."""

    def __init__(self, target: int, limit: int | None = None) -> None:
        self._target = target
        self._left = limit
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _allowed(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        with self._lock:
            data = data[: self._left]
            self._left -= len(data)
            return data

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                allowed = self._allowed(data)
                sink.sendall(allowed)
                if len(allowed) < len(data):
                    self.cut()
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for sock in self._pairs:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() alone does not
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def silent_listener() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def ssh_agent(folder: Path, *keys: Path) -> Iterator[str]:
    """The socket of a running ssh-agent that holds `keys`."""
    path = folder / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    environ = {**os.environ, "SSH_AUTH_SOCK": str(path)}
    try:
        end = time.monotonic() + 60
        # Status 2: nobody answers there yet. The socket is in its place a moment before that.
        while subprocess.run(["ssh-add", "-l"], capture_output=True, env=environ).returncode == 2:
            assert time.monotonic() < end, "ssh-agent does not answer"
            time.sleep(0.01)
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], check=True, env=environ)
        yield str(path)
    finally:
        process.terminate()
        process.wait(10)
