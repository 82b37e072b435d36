"""A host to reach in tests: a real sshd, an ssh configuration that leads to it, and what a test asks of both."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sshd import USER, Sshd, public

from ddtool.errors import HostError
from ddtool.transport.knownhosts import public_key
from ddtool.transport.ssh import connect
from ddtool.transport.sshhost import SshHost


@dataclass
class Server:
    """An sshd with an ed25519 and an RSA host key, which lets `user` and `rsa` in."""

    sshd: Sshd
    ed25519: Path
    rsa: Path
    user: Path
    user_rsa: Path

    @property
    def port(self) -> int:
        return self.sshd.port


class Config:
    """An ssh configuration with the Host `gpu`; keyword arguments are its options."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.known_hosts = folder / "known_hosts"
        self.file = folder / "config"
        self.defaults: dict[str, object] = {}  # options of every connection, unless a test says otherwise
        self.know(f"[127.0.0.1]:{server.port} {public(server.ed25519)}")

    def know(self, *lines: str) -> None:
        self.known_hosts.write_text("".join(f"{line}\n" for line in lines))

    def write(self, before: str = "", after: str = "", **options: object) -> str:
        self.file.write_text(before + self.block("gpu", **{**self.defaults, **options}) + after)
        return str(self.file)

    def block(self, name: str, **options: object) -> str:
        """A Host that is the server under another name; an option of None is left out."""
        merged = {
            "HostName": "127.0.0.1",
            "Port": self.server.port,
            "User": USER,
            "IdentityFile": self.server.user,
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "none",
            **options,
        }
        lines = [f"  {key} {value}\n" for key, value in merged.items() if value is not None]
        return f"Host {name}\n" + "".join(lines)

    def openssh(self, *, expect: bool) -> None:
        """Whether OpenSSH's own client gets in, with the configuration that was written last and no question."""
        done = subprocess.run(
            ["ssh", "-F", str(self.file), "-o", "BatchMode=yes", "gpu", "true"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == expect, done.stderr

    def connect(self, timeout: float = 10, **options: object) -> SshHost:
        return connect("gpu", ssh_config=self.write(**options), connect_timeout_s=timeout)

    def failure(self, cls: type[HostError], timeout: float = 10, **options: object) -> HostError:
        """The error of a connection that must fail: exactly of this class, exit code 3, with a next command."""
        before = threading.enumerate()
        with pytest.raises(HostError) as caught:
            self.connect(timeout, **options)
        assert not new_threads(before)
        assert type(caught.value) is cls, f"{caught.value} {caught.value.why}"
        assert caught.value.exit_code == 3
        assert caught.value.why and caught.value.hint
        return caught.value


def new_threads(before: list[threading.Thread]) -> list[threading.Thread]:
    """Threads that came since and do not end: a cancelled timer takes a moment."""
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(10)
    return [thread for thread in new if thread.is_alive()]


def run(host: SshHost, command: str, stdin: bytes = b"") -> tuple[bytes, str, int | None]:
    channel = host.open(command)
    if stdin:
        channel.send(stdin)
    output = b""
    while part := channel.recv(65536, 10):
        output += part
    status = channel.exit_status(10)
    stderr = channel.stderr_tail()
    channel.close()
    return output, stderr, status


def assert_reaches(host: SshHost) -> None:
    """A connection is proof enough; a command costs the login shell's start."""
    assert host.alive
    host.close()


def behind(config: Config, *hops: str, **changes: dict[str, object]) -> dict[str, object]:
    """`gpu` behind these hosts, which are other names of the same sshd; `changes` has options of some of them."""
    blocks = [config.block(hop, **changes.get(hop, {})) for hop in hops]
    return {"ProxyJump": ",".join(hops), "after": "".join(blocks)}


def fingerprint(key: Path) -> str:
    found = public_key(public(key).split())
    assert found is not None
    return found.fingerprint
