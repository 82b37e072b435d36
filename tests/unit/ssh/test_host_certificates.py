"""Hosts that are known by an authority. What OpenSSH's own client says of the same host is asked in each case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import Sshd, certify, keygen, public
from support.sshhost import Config, assert_reaches

from ddtool.errors import HostKeyChanged, HostKeyUnknown
from ddtool.transport import certificates
from ddtool.transport.certificates import Unreadable, host_problem, read
from ddtool.transport.knownhosts import PublicKey, public_key

ALIAS = "gpu.example"  # the name that certificates are for, and that known_hosts has


class Authority:
    """An authority, and the host keys that it certifies."""

    def __init__(self, folder: Path, kind: str = "ed25519") -> None:
        self.folder = folder
        self.key = keygen(folder / f"authority_{kind}", kind)

    def host_key(self, *options: str, kind: str = "ed25519") -> Path:
        key = keygen(self.folder / "certified_host", kind)
        certify(self.key, key, "-h", *options)
        return key

    def line(self, hosts: str = ALIAS) -> str:
        return f"@cert-authority {hosts} {public(self.key)}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def start(config: Config, host_key: Path) -> Sshd:
    return Sshd(config.folder / "certified", [host_key], [public(config.server.user)])


def judged(config: Config, host_key: Path, *, trusted: bool, **options: object) -> str:
    """Both clients' judgement of a host; the error's words where it is refused."""
    with start(config, host_key) as sshd:
        settings = {"Port": sshd.port, "HostKeyAlias": ALIAS, "StrictHostKeyChecking": "yes", **options}
        config.write(**settings)
        config.openssh(expect=trusted)
        if trusted:
            assert_reaches(config.connect(**settings))
            return ""
        error = config.failure(HostKeyUnknown, **settings)
        return f"{error.message}\n{error.why}\n{error.hint}"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_host_known_by_its_authority(config: Config, tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path, kind)
    config.know(authority.line("*.example"))
    judged(config, authority.host_key("-n", f"other,{ALIAS}", kind=kind), trusted=True)


def test_the_authority_decides_before_a_key_that_has_changed(config: Config, authority: Authority) -> None:
    config.know(f"{ALIAS} {public(config.server.ed25519)}", authority.line())
    judged(config, authority.host_key("-n", ALIAS), trusted=True)


@pytest.mark.parametrize("hosts", ["[127.0.0.1]:{port}", "127.0.0.1"])
def test_a_name_with_a_port(config: Config, authority: Authority, hosts: str) -> None:
    with start(config, authority.host_key("-n", "127.0.0.1")) as sshd:
        config.know(authority.line(hosts.format(port=sshd.port)))
        config.write(Port=sshd.port, StrictHostKeyChecking="yes")
        config.openssh(expect=True)
        assert_reaches(config.connect(Port=sshd.port))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-n", ALIAS, "-V", "20200101:20210101"], "the host's certificate has expired on 2021-01-01"),
        (["-n", ALIAS, "-V", "20990101:20990201"], "is not valid before 2099-01-01"),
        (["-n", "other"], f"is for other, not for {ALIAS}"),
        (["-n", ALIAS, "-O", "critical:x@example=y"], "critical option x@example"),
    ],
)
def test_a_certificate_that_proves_nothing(
    config: Config, authority: Authority, options: list[str], words: str
) -> None:
    config.know(authority.line())
    said = judged(config, authority.host_key(*options), trusted=False)
    assert words in said and "ssh-keygen -s AUTHORITY -h" in said


def test_an_expired_certificate_leaves_the_bare_key_to_be_known(config: Config, authority: Authority) -> None:
    key = authority.host_key("-n", ALIAS, "-V", "20200101:20210101")
    config.know(authority.line(), f"{ALIAS} {public(key)}")
    judged(config, key, trusted=True)


def test_another_authority(config: Config, authority: Authority, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    config.know(f"@cert-authority {ALIAS} {public(other)}")
    said = judged(config, authority.host_key("-n", ALIAS), trusted=False)
    assert "is signed by ssh-ed25519 SHA256:" in said and f"{config.known_hosts}:1" in said


def test_algorithms_of_the_signature(config: Config, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "rsa")
    config.know(authority.line())
    key = authority.host_key("-n", ALIAS)
    said = judged(config, key, trusted=False, CASignatureAlgorithms="ssh-ed25519,rsa-sha2-256")
    assert "is signed with rsa-sha2-512" in said
    certify(authority.key, key, "-h", "-n", ALIAS, "-t", "ssh-rsa")
    assert "is signed with ssh-rsa" in judged(config, key, trusted=False)


def test_a_revoked_authority(config: Config, authority: Authority, tmp_path: Path) -> None:
    key = authority.host_key("-n", ALIAS)
    (tmp_path / "list").write_text(public(authority.key) + "\n")
    with start(config, key) as sshd:
        options = {"Port": sshd.port, "HostKeyAlias": ALIAS}
        config.know(authority.line(), f"@revoked * {public(authority.key)}")
        error = config.failure(HostKeyChanged, **options)
        assert "of an authority that is revoked" in error.message and f"{config.known_hosts}:2" in (
            error.why or ""
        )
        config.openssh(expect=False)
        config.know(authority.line())
        assert (
            "revoked" in config.failure(HostKeyChanged, RevokedHostKeys=tmp_path / "list", **options).message
        )
        config.openssh(expect=False)


# ---- what no sshd shows


@pytest.fixture
def certificate(authority: Authority) -> PublicKey:
    return public_of(Path(f"{authority.host_key('-n', ALIAS)}-cert.pub"))


def public_of(path: Path) -> PublicKey:
    found = public_key(path.read_text().split()[:2])
    assert found
    return found


def test_what_a_certificate_says(certificate: PublicKey, authority: Authority) -> None:
    found = read(certificate)
    assert found.key == public_of(authority.folder / "certified_host.pub")
    assert found.authority == public_of(authority.folder / "authority_ed25519.pub")
    assert (found.signed_with, found.of_host, found.principals) == ("ssh-ed25519", True, (ALIAS,))
    assert str(found) == f'certificate "certified_host" for {ALIAS}, valid for ever'


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_no_byte_can_be_changed(tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path, kind)
    whole = public_of(Path(f"{authority.host_key('-n', ALIAS)}-cert.pub"))
    read(whole)
    for at in range(len(whole.blob)):
        blob = bytearray(whole.blob)
        blob[at] ^= 1
        with pytest.raises(Unreadable):
            read(replace(whole, blob=bytes(blob)))


def test_a_user_s_certificate_is_no_host_s(authority: Authority, tmp_path: Path) -> None:
    found = read(public_of(certify(authority.key, keygen(tmp_path / "user"), "-n", ALIAS)))
    assert host_problem(found, ALIAS, 0, None) == "is a user's certificate"


def test_a_certificate_for_nobody_is_for_nobody(authority: Authority) -> None:
    """As in OpenSSH since 10.3; before, it was for every host."""
    found = read(public_of(Path(f"{authority.host_key()}-cert.pub")))
    assert host_problem(found, ALIAS, 0, None) == f"is for no name, not for {ALIAS}"


def test_a_certificate_for_a_pattern(authority: Authority) -> None:
    """As in OpenSSH since 10.3; before, patterns stood for themselves."""
    found = read(public_of(Path(f"{authority.host_key('-n', '*.example')}-cert.pub")))
    assert host_problem(found, "a.example", 0, None) is None
    assert host_problem(found, "example", 0, None) == "is for *.example, not for example"


def test_control_characters_are_matched_and_not_shown(certificate: PublicKey) -> None:
    found = replace(read(certificate), principals=("gpu.\x1b[1mexample",), identity="\x1b]0;x\x07me")
    assert host_problem(found, ALIAS, 0, None) == f"is for gpu.example, not for {ALIAS}"
    assert "\x1b" not in str(found)


@pytest.mark.parametrize("text", ["", "ssh-ed25519", "AAAA"])
def test_no_certificate(certificate: PublicKey, text: str) -> None:
    with pytest.raises(Unreadable):
        read(PublicKey(certificate.type, text.encode()))


def test_a_time_beyond_all_calendars() -> None:
    assert certificates.when(2**63) == f"Unix time {2**63}"
