"""Logging in with keys from files and agents, and what is said when none is right."""

from __future__ import annotations

import os
from pathlib import Path

from support.sshd import USER, keygen, ssh_agent
from support.sshhost import Config, assert_reaches, fingerprint

from ddtool.errors import AuthenticationFailed
from ddtool.transport.ssh import connect


def test_keys_from_an_agent(config: Config, tmp_path: Path) -> None:
    with ssh_agent(tmp_path, config.server.user_rsa) as agent:
        assert_reaches(config.connect(IdentityAgent=agent, IdentityFile="none"))
        # A public key names the agent's key, also where IdentitiesOnly keeps the others back.
        options = {"IdentityAgent": agent, "IdentitiesOnly": "yes"}
        assert_reaches(config.connect(IdentityFile=f"{config.server.user_rsa}.pub", **options))
        error = config.failure(AuthenticationFailed, IdentityFile=tmp_path / "missing", **options)
        assert "no key" in (error.why or "")


def test_the_agent_of_the_environment(config: Config, tmp_path: Path) -> None:
    with ssh_agent(tmp_path, config.server.user) as agent:
        file = config.write(IdentityAgent=None, IdentityFile="none")
        environ = {**os.environ, "SSH_AUTH_SOCK": agent}
        assert_reaches(connect("gpu", ssh_config=file, connect_timeout_s=10, environ=environ))


def test_an_agent_that_is_gone(config: Config, tmp_path: Path) -> None:
    assert_reaches(config.connect(IdentityAgent=tmp_path / "gone"))
    error = config.failure(AuthenticationFailed, IdentityAgent=tmp_path / "gone", IdentityFile="none")
    assert f"the agent at {tmp_path}/gone: No such file" in (error.why or "")


def test_keys_of_every_form(config: Config) -> None:
    assert_reaches(
        config.connect(IdentityFile=config.server.user_rsa)
    )  # PKCS#8, which paramiko does not read


def test_no_key_is_right(config: Config, tmp_path: Path) -> None:
    wrong, missing = keygen(tmp_path / "wrong"), tmp_path / "missing"
    error = config.failure(AuthenticationFailed, IdentityFile=f"{wrong}\n  IdentityFile {missing}")
    why = error.why or ""
    assert f"{USER}@127.0.0.1:{config.server.port}" in error.message
    assert f"tried: ssh-ed25519 {fingerprint(wrong)} from {wrong}" in why
    assert str(missing) not in why
    assert "it accepts publickey" in why


def test_files_that_are_no_usable_key(config: Config, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("hello")
    (tmp_path / "junk").chmod(0o600)
    shared = keygen(tmp_path / "shared")
    shared.chmod(0o644)
    error = config.failure(AuthenticationFailed, IdentityFile=f"{tmp_path}/junk\n  IdentityFile {shared}")
    assert f"{tmp_path}/junk: not a private key" in (error.why or "")
    assert f"{shared}: others may read it" in (error.why or "")


def test_too_many_keys(config: Config, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"key{n}") for n in range(4)]
    with ssh_agent(tmp_path, *keys, config.server.user) as agent:
        error = config.failure(AuthenticationFailed, IdentityAgent=agent, IdentityFile="none")
        assert "IdentitiesOnly" in (error.hint or "")
        assert (error.why or "").count("tried:") >= 2
