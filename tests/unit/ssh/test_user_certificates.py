"""Users' certificates, from files and from agents."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.sshd import USER, Sshd, keygen, public
from support.sshhost import Config, assert_reaches

from ddtool.errors import AuthenticationFailed


def test_a_certificate(tmp_path: Path, config: Config) -> None:
    authority = keygen(tmp_path / "authority")
    key = keygen(tmp_path / "certified")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", "x", "-n", USER, f"{key}.pub"], check=True
    )
    config.failure(AuthenticationFailed, IdentityFile=key)
    sshd = Sshd(tmp_path / "run", [config.server.ed25519], [f"cert-authority {public(authority)}"])
    try:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        assert_reaches(config.connect(IdentityFile=key, Port=sshd.port))
        moved = Path(f"{key}-cert.pub").rename(tmp_path / "elsewhere.pub")
        assert_reaches(config.connect(IdentityFile=key, CertificateFile=moved, Port=sshd.port))
    finally:
        sshd.stop()
