"""RevokedHostKeys: a list of public keys as text, or a binary list (KRL), which `ssh-keygen -Q` reads."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ddtool.errors import HostError
from ddtool.transport.knownhosts import PublicKey, public_keys
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.text import last_lines

KRL_MAGIC = b"SSHKRL\n\0"
TIMEOUT_S = 10.0


def revoking_file(config: SshConfig, keys: Sequence[PublicKey], whole: PublicKey) -> str | None:
    """The file of RevokedHostKeys when it revokes one of `keys`, or `whole`, a host's key or certificate as shown.

    Raises HostError for a file that cannot be checked: ssh refuses all hosts then, and so does ddtool.
    """
    path = config.revoked_host_keys
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            binary = file.read(len(KRL_MAGIC)) == KRL_MAGIC
        revoked = _in_krl(path, whole) if binary else any(key in public_keys(path) for key in keys)
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
        raise HostError(
            f"{config.name}: cannot check RevokedHostKeys {path}",
            why=str(error),
            hint="repair the file, or take RevokedHostKeys out of the ssh configuration",
        ) from error
    return path if revoked else None


def _in_krl(path: str, key: PublicKey) -> bool:
    """Asked of OpenSSH: a KRL also revokes by serial number, by key id and by hash. Raises OSError, TimeoutExpired."""
    with tempfile.NamedTemporaryFile("w", prefix="ddtool-", suffix=".pub") as file:
        file.write(f"{key.type} {base64.b64encode(key.blob).decode()}\n")
        file.flush()
        done = subprocess.run(
            ["ssh-keygen", "-Q", "-f", path, file.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise OSError(last_lines(done.stderr.decode(errors="replace"), 2) or "ssh-keygen cannot read it")
    return done.returncode == 1
