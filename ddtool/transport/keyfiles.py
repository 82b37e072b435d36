"""Private keys in files: read as OpenSSH would accept them, and unlocked with a person at a terminal."""

from __future__ import annotations

import io
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from paramiko import ECDSAKey, Ed25519Key, PKey, RSAKey

from ddtool.transport.knownhosts import PublicKey, public_key
from ddtool.transport.passphrase import Ask

ATTEMPTS = 3  # as ssh's NumberOfPasswordPrompts

# A link that breaks is joined again without a second question. Forgotten with the process.
_unlocked: dict[tuple[str, int], PKey] = {}


class Encrypted(Exception):
    """The file needs a passphrase, or another one than was given."""


class Unusable(Exception):
    pass


def load_private_key(path: str, passphrase: str | None = None) -> PKey:
    """The private key in a file, in OpenSSH, PEM or PKCS#8 form. Raises OSError, Encrypted, Unusable."""
    file = Path(path)
    status = file.stat()
    if status.st_mode & 0o077:
        raise Unusable("others may read it: chmod 600")
    if found := _unlocked.get((path, status.st_mtime_ns)):
        return found
    key = _parse(file.read_bytes(), passphrase)
    if passphrase is not None:
        _unlocked[path, status.st_mtime_ns] = key
    return key


def unlock(path: str, ask: Ask) -> PKey | None:
    """The key in an encrypted file, or None when nobody could say its passphrase. Raises OSError, Unusable."""
    for _ in range(ATTEMPTS):
        passphrase = ask(path)
        if not passphrase:
            return None
        try:
            return load_private_key(path, passphrase)
        except Encrypted:
            continue
    return None


def public_part(path: str) -> PublicKey | None:
    """The public key beside an identity file, or in it: it may be a .pub whose other half the agent holds."""
    for candidate in (f"{path}.pub", path):
        if key := public_key_in(candidate):
            return key
    return None


def public_key_in(path: str) -> PublicKey | None:
    """The public key or certificate in a file of one line."""
    try:
        return public_key(Path(path).read_text(encoding="utf-8", errors="replace").split()[:2])
    except OSError:
        return None


def _parse(data: bytes, passphrase: str | None) -> PKey:
    password = None if passphrase is None else passphrase.encode()
    try:
        try:
            key = load_ssh_private_key(data, password)
        except ValueError:
            if b"BEGIN OPENSSH" in data:
                raise
            key = load_pem_private_key(data, password)  # type: ignore[assignment]
    except TypeError as error:  # how cryptography says that a password is missing
        raise Encrypted from error
    except (ValueError, UnsupportedAlgorithm) as error:
        if password is not None:  # it was encrypted, or nobody would have asked
            raise Encrypted from error
        if "sk-" in str(error):
            raise Unusable("a security key works through the agent only: ssh-add") from error
        raise Unusable("not a private key of a type that ddtool can use") from error
    if isinstance(key, rsa.RSAPrivateKey):
        cls: type[PKey] = RSAKey
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        cls = ECDSAKey
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        cls = Ed25519Key
    else:
        raise Unusable("DSA and other retired key types are not supported")
    # paramiko reads fewer forms than OpenSSH (no PKCS#8), but every class reads this one.
    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return cls.from_private_key(io.StringIO(text))
