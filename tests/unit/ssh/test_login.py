"""Logging in with keys from files and agents, and what is said when none is right."""

from __future__ import annotations

import os
from pathlib import Path

from support.sshd import USER, Sshd, keygen, public, ssh_agent
from support.sshhost import Config, assert_reaches, fingerprint, run

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


def test_a_banner_before_the_login(config: Config, tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("Authorised persons only.\n" * 200)
    options = f"Banner {tmp_path}/banner\nPrintMotd yes\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], options) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        host = config.connect(Port=sshd.port)
        assert run(host, "echo on")[0] == b"on\n"
        host.close()


def test_algorithms_that_may_not_be_offered(config: Config) -> None:
    error = config.failure(AuthenticationFailed, PubkeyAcceptedAlgorithms="rsa-sha2-512")
    assert "PubkeyAcceptedAlgorithms does not allow ssh-ed25519" in (error.why or "")
    assert_reaches(
        config.connect(PubkeyAcceptedAlgorithms="rsa-sha2-512", IdentityFile=config.server.user_rsa)
    )


def test_a_second_factor(config: Config, tmp_path: Path) -> None:
    options = "AuthenticationMethods publickey,publickey\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], options) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        error = config.failure(AuthenticationFailed, Port=sshd.port)
    assert "accepted, but the host also wants publickey" in (error.why or "")


def test_a_host_that_accepts_no_keys(config: Config, tmp_path: Path) -> None:
    options = "PubkeyAuthentication no\nKbdInteractiveAuthentication yes\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [], options) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        error = config.failure(AuthenticationFailed, Port=sshd.port)
    assert "accepts no keys" in error.message and "PubkeyAuthentication yes" in (error.hint or "")


def test_keys_of_a_token(config: Config, tmp_path: Path) -> None:
    error = config.failure(AuthenticationFailed, IdentityFile="none", PKCS11Provider="/usr/lib/token.so")
    assert "ssh-add -s /usr/lib/token.so" in (error.why or "")
