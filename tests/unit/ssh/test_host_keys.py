"""Host keys: which are trusted, by which file, and what is said of the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.sshd import keygen, public
from support.sshhost import Config, assert_reaches, fingerprint

from ddtool.errors import AuthenticationFailed, ConnectTimeout, HostError, HostKeyChanged, HostKeyUnknown


@pytest.mark.parametrize("hashed", [False, True])
def test_known_among_other_lines(config: Config, hashed: bool) -> None:
    where = f"[127.0.0.1]:{config.server.port}"
    config.know(
        f"@cert-authority *.example.com {public(config.server.user)}",  # paramiko's own reader dies on it
        f"other {public(config.server.rsa)}",
        f"{where} {public(config.server.ed25519)}",
    )
    if hashed:
        subprocess.run(["ssh-keygen", "-H", "-f", str(config.known_hosts)], check=True, capture_output=True)
        assert where not in config.known_hosts.read_text()
    config.known_hosts.write_text("a line that means nothing\n" + config.known_hosts.read_text())
    assert_reaches(config.connect())


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_the_known_type_of_key_is_asked_for(config: Config, kind: str) -> None:
    config.know(f"[127.0.0.1]:{config.server.port} {public(getattr(config.server, kind))}")
    assert_reaches(config.connect())


def test_known_for_the_bare_name(config: Config) -> None:
    config.know(f"127.0.0.1 {public(config.server.ed25519)}")
    assert_reaches(config.connect())


def test_known_in_the_second_and_in_the_global_file(config: Config, tmp_path: Path) -> None:
    config.known_hosts.rename(tmp_path / "second")
    assert_reaches(config.connect(UserKnownHostsFile=f"{tmp_path}/none {tmp_path}/second"))
    assert_reaches(config.connect(UserKnownHostsFile="none", GlobalKnownHostsFile=tmp_path / "second"))


def test_host_key_alias(config: Config) -> None:
    config.know(f"the-gpu {public(config.server.ed25519)}")
    assert_reaches(config.connect(HostKeyAlias="the-gpu"))


@pytest.mark.parametrize("checking", ["ask", "accept-new", "no"])
def test_an_unknown_key_is_never_accepted(config: Config, checking: str) -> None:
    config.know()
    error = config.failure(HostKeyUnknown, StrictHostKeyChecking=checking)
    assert fingerprint(config.server.ed25519) in (error.why or "") or fingerprint(config.server.rsa) in (
        error.why or ""
    )
    assert str(config.known_hosts) in (error.why or "")
    assert (error.hint or "").startswith(f"ssh -F {config.file} gpu")
    assert config.known_hosts.read_text() == ""


def test_a_changed_key(config: Config, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    config.know("# a comment", f"[127.0.0.1]:{config.server.port} {public(other)}")
    error = config.failure(HostKeyChanged)
    why = error.why or ""
    assert fingerprint(other) in why and fingerprint(config.server.ed25519) in why
    assert f"{config.known_hosts}:2" in why
    assert "ssh-keygen -R" in (error.hint or "")


def test_only_another_type_is_known(config: Config, tmp_path: Path) -> None:
    config.know(f"[127.0.0.1]:{config.server.port} {public(keygen(tmp_path / 'e', 'ecdsa'))}")
    error = config.failure(HostKeyUnknown)
    assert f"{config.known_hosts}:1" in (error.why or "")


def test_a_revoked_key(config: Config, tmp_path: Path) -> None:
    where = f"[127.0.0.1]:{config.server.port}"
    config.know(f"{where} {public(config.server.ed25519)}", f"@revoked * {public(config.server.ed25519)}")
    assert "revoked" in config.failure(HostKeyChanged).message
    config.know(f"{where} {public(config.server.ed25519)}")
    (tmp_path / "revoked").write_text(public(config.server.ed25519) + "\n")
    assert "revoked" in config.failure(HostKeyChanged, RevokedHostKeys=tmp_path / "revoked").message
    assert "RevokedHostKeys" in config.failure(HostError, RevokedHostKeys=tmp_path / "missing").message


def test_a_binary_list_of_revoked_keys(config: Config, tmp_path: Path) -> None:
    """A KRL, which OpenSSH reads for us."""
    krl = tmp_path / "krl"
    for listed in (config.server.user, config.server.ed25519):
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(krl), f"{listed}.pub"], check=True)
        if listed == config.server.user:
            assert_reaches(config.connect(RevokedHostKeys=krl))
        else:
            assert f"revoked in {krl}" in (config.failure(HostKeyChanged, RevokedHostKeys=krl).why or "")
    krl.write_bytes(krl.read_bytes()[:-20])
    error = config.failure(HostError, RevokedHostKeys=krl)
    assert f"cannot check RevokedHostKeys {krl}" in error.message


def printing(config: Config, *lines: str) -> str:
    """A KnownHostsCommand that prints `lines` and notes its arguments."""
    program = config.folder / "keys of hosts"
    said = "".join(f"{line}\n" for line in lines)
    program.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{config.folder}/asked'\ncat <<'END'\n{said}END\n"
    )
    program.chmod(0o700)
    return f'"{program}" %I %H %f %t %K %h %p %n 100%% "a b" ${{HOME}}'


def test_known_by_a_command(config: Config) -> None:
    """KnownHostsCommand is asked twice, with what OpenSSH gives it; its lines count beside those of the files."""
    config.know()
    name = f"[127.0.0.1]:{config.server.port}"
    command = printing(
        config, f"other {public(config.server.rsa)}", f"{name} {public(config.server.ed25519)}"
    )
    assert_reaches(config.connect(KnownHostsCommand=command))
    ours = (config.folder / "asked").read_text().splitlines()
    (config.folder / "asked").unlink()
    config.openssh(expect=True)
    assert ours == (config.folder / "asked").read_text().splitlines()
    assert ours[0].startswith("ORDER 127.0.0.1 NONE NONE NONE 127.0.0.1 ") and " gpu 100% a b /" in ours[0]
    assert ours[1].startswith(f"HOSTNAME {name} SHA256:")


def test_a_command_decides_as_a_file_does(config: Config) -> None:
    """Also the order of key types, a changed key, a revoked one; and the bare name is not looked up, as in OpenSSH."""
    config.know()
    name, rsa, good = (
        f"[127.0.0.1]:{config.server.port}",
        public(config.server.rsa),
        public(config.server.ed25519),
    )
    assert_reaches(config.connect(KnownHostsCommand=printing(config, f"{name} {rsa}")))
    error = config.failure(
        HostKeyChanged, KnownHostsCommand=printing(config, f"{name} {public(config.server.user)}")
    )
    assert "(KnownHostsCommand:1)" in (error.why or "") and "have KnownHostsCommand print" in (
        error.hint or ""
    )
    revoking = printing(config, f"{name} {good}", f"@revoked * {good}", f"@revoked * {rsa}")
    assert "revoked in KnownHostsCommand:" in (
        config.failure(HostKeyChanged, KnownHostsCommand=revoking).why or ""
    )
    bare = printing(config, f"127.0.0.1 {good}")
    assert "KnownHostsCommand has no key" in (
        config.failure(HostKeyUnknown, KnownHostsCommand=bare).why or ""
    )
    config.openssh(expect=False)


def test_a_command_that_fails_and_one_that_cannot_be_run(config: Config) -> None:
    """The first ends the connection, in OpenSSH as well; without the second the files decide."""
    error = config.failure(HostError, KnownHostsCommand="/bin/sh -c 'echo no network >&2; exit 3'")
    assert "KnownHostsCommand failed" in error.message and "no network" in (error.why or "")
    config.openssh(expect=False)
    assert "NOPE is not set" in (config.failure(HostError, KnownHostsCommand="/bin/echo ${NOPE}").why or "")
    config.openssh(expect=False)
    assert "did not end" in config.failure(ConnectTimeout, 0.5, KnownHostsCommand="/bin/sleep 60").message
    for command in ("keys %H", "/nowhere/keys %H"):
        assert_reaches(config.connect(KnownHostsCommand=command))
        config.openssh(expect=True)
    config.know()
    assert "not run: its path" in (config.failure(HostKeyUnknown, KnownHostsCommand="keys %H").why or "")


def test_a_host_known_by_an_authority_only(config: Config) -> None:
    config.know(f"@cert-authority * {public(config.server.user)}")
    error = config.failure(HostKeyUnknown)
    assert "shows no certificate" in (error.why or "") and "HostCertificate" in (error.hint or "")


def test_an_rsa_key_that_is_too_short(config: Config) -> None:
    """RequiredRSASize, for the host's key and for ours; both here have 2048 bits."""
    config.know(f"[127.0.0.1]:{config.server.port} {public(config.server.rsa)}")
    error = config.failure(HostError, RequiredRSASize=3072)
    assert "of 2048 bits, and RequiredRSASize is 3072" in (error.why or "")
    config.openssh(expect=False)
    assert_reaches(config.connect(RequiredRSASize=2048))
    config.know(f"[127.0.0.1]:{config.server.port} {public(config.server.ed25519)}")
    failed = config.failure(AuthenticationFailed, RequiredRSASize=3072, IdentityFile=config.server.user_rsa)
    assert "passed over: ssh-rsa" in (failed.why or "") and "RequiredRSASize is 3072" in (failed.why or "")
    config.openssh(expect=False)


def test_no_exception_for_this_machine(config: Config) -> None:
    config.know()
    config.failure(
        HostKeyUnknown, NoHostAuthenticationForLocalhost="yes", VerifyHostKeyDNS="yes", CheckHostIP="no"
    )
    config.openssh(expect=True)  # on its own authority, where ddtool wants a line
