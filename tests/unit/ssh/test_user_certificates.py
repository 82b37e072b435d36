"""Users' certificates: from files and from agents, and what is said of one that the host refuses."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import USER, Sshd, certify, keygen, public, ssh_agent
from support.sshhost import Config, assert_reaches

from ddtool.errors import AuthenticationFailed


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return keygen(tmp_path / "authority")


@pytest.fixture
def certified(config: Config, authority: Path, tmp_path: Path) -> Iterator[Config]:
    """A configuration for a host that lets in whom `authority` certified, and nobody else."""
    with Sshd(tmp_path / "run", [config.server.ed25519], [f"cert-authority {public(authority)}"]) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        config.defaults = {"Port": sshd.port}
        yield config


def test_a_certificate_beside_its_key(certified: Config, authority: Path, tmp_path: Path) -> None:
    key = keygen(tmp_path / "certified")
    certified.failure(AuthenticationFailed, IdentityFile=key)
    certify(authority, key, "-n", USER)
    assert_reaches(certified.connect(IdentityFile=key))


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_certificate_elsewhere(certified: Config, authority: Path, tmp_path: Path, kind: str) -> None:
    key = keygen(tmp_path / "certified", kind)
    moved = certify(authority, key, "-n", USER).rename(tmp_path / "elsewhere.pub")
    assert_reaches(certified.connect(IdentityFile=key, CertificateFile=moved))


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_an_agent_that_holds_a_certificate_alone(
    certified: Config, authority: Path, tmp_path: Path, kind: str
) -> None:
    key = keygen(tmp_path / "certified", kind)
    certify(authority, key, "-n", USER)
    with ssh_agent(tmp_path, key) as agent:
        environ = {**os.environ, "SSH_AUTH_SOCK": agent}
        bare = tmp_path / "bare.pub"  # beside this name no certificate is found, which would go as well
        bare.write_text(Path(f"{key}.pub").read_text())
        subprocess.run(["ssh-add", "-q", "-d", str(bare)], check=True, env=environ)
        listed = subprocess.run(["ssh-add", "-l"], check=True, env=environ, capture_output=True, text=True)
        assert listed.stdout.count("\n") == listed.stdout.count("-CERT)") == 1
        assert_reaches(certified.connect(IdentityAgent=agent, IdentityFile="none"))


def test_a_certificate_in_a_file_for_a_key_in_the_agent(
    certified: Config, authority: Path, tmp_path: Path
) -> None:
    key = keygen(tmp_path / "certified")
    with ssh_agent(tmp_path, key) as agent:
        certificate = certify(authority, key, "-n", USER)
        key.unlink()
        assert_reaches(
            certified.connect(IdentityAgent=agent, IdentityFile="none", CertificateFile=certificate)
        )
        options = {"IdentityAgent": agent, "IdentitiesOnly": "yes"}
        assert_reaches(certified.connect(IdentityFile=key, **options))
        error = certified.failure(AuthenticationFailed, IdentityFile="none", **options)
        assert "no key" in (error.why or "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", USER, "-V", "20200101:20210101"], "which has expired on 2021-01-01"),
        (["-n", USER, "-V", "20990101:20990201"], "which is not valid before 2099-01-01"),
        (["-n", "somebody"], f"which is for somebody, not for {USER}"),
        (["-h", "-n", USER], "which is a host's certificate"),
    ],
)
def test_a_certificate_that_the_host_refuses(
    certified: Config, authority: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    key = keygen(tmp_path / "certified")
    certify(authority, key, *options)
    error = certified.failure(AuthenticationFailed, IdentityFile=key)
    assert words in (error.why or "")
    assert "get a new certificate" in (error.hint or "")


def test_a_certificate_that_is_none(certified: Config, authority: Path, tmp_path: Path) -> None:
    key = keygen(tmp_path / "certified")
    certificate = certify(authority, key, "-n", "somebody")
    kind, text = certificate.read_text().split()[:2]
    certificate.write_text(f"{kind} {text[:-12]}{'A' * 12}\n")
    error = certified.failure(AuthenticationFailed, IdentityFile=key)
    assert f"passed over: the certificate of {key} and {certificate}: " in (error.why or "")
