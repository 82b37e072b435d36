"""Keys that need a passphrase: asked for at a terminal, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from support.sshd import keygen
from support.sshhost import Config

from ddtool.errors import AuthenticationFailed


def test_an_encrypted_key_is_named_and_never_asked_for(config: Config, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", "ed25519", "secret")
    error = config.failure(AuthenticationFailed, IdentityFile=locked)
    assert f"passed over: {locked}: needs a passphrase" in (error.why or "")
    assert f"ssh-add {locked}" in (error.hint or "")
