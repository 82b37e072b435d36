"""One sshd for all tests of the transport, and an ssh configuration for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import SSHD, Sshd, keygen, public
from support.sshhost import Config, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not Path(SSHD).exists() and not os.environ.get("CI"):
        pytest.skip("no openssh-server here")
    folder = tmp_path_factory.mktemp("sshd")
    ed25519, rsa = keygen(folder / "host_ed25519"), keygen(folder / "host_rsa", "rsa")
    user, user_rsa = keygen(folder / "user"), keygen(folder / "user_rsa", "rsa", "", "-m", "PKCS8")
    sshd = Sshd(
        folder / "run", [rsa, ed25519], [public(user), public(user_rsa)], "MaxAuthTries 3\nMaxStartups 100\n"
    )
    yield Server(sshd, ed25519, rsa, user, user_rsa)
    sshd.stop()


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Config:
    return Config(server, tmp_path)
