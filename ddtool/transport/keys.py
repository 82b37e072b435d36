"""The user's keys: from the ssh agent and from IdentityFile, in the order in which OpenSSH tries them."""

from __future__ import annotations

import io
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from paramiko import ECDSAKey, Ed25519Key, PKey, RSAKey, SSHException
from paramiko.agent import AgentSSH

from ddtool.transport.knownhosts import PublicKey, public_key

if TYPE_CHECKING:
    from ddtool.transport.sshconfig import SshConfig


@dataclass(frozen=True)
class Identity:
    """A key that can be offered. `source` says where it came from, in the user's words."""

    key: PKey
    source: str

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.get_name(), self.key.asbytes())

    def __str__(self) -> str:
        certificate = " with its certificate" if self.key.public_blob else ""
        return f"{self.public}{certificate} from {self.source}"


@dataclass
class KeyRing:
    """What there is to offer, in order, and what was passed over and why (one sentence each)."""

    identities: list[Identity] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    encrypted: list[str] = field(default_factory=list)  # paths, as `ssh-add` takes them

    @property
    def add_command(self) -> str | None:
        return f"ssh-add {shlex.join(self.encrypted)}" if self.encrypted else None


class SshAgent(AgentSSH):
    """A connection to the agent at a socket path; paramiko's own Agent has no IdentityAgent and no timeout."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
            # As paramiko's own Agent does it; the type stubs leave the method out.
            self._connect(self._socket)  # type: ignore[attr-defined]
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()


class Encrypted(Exception):
    pass


class Unusable(Exception):
    pass


def load_private_key(path: str) -> PKey:
    """The private key in a file, in OpenSSH, PEM or PKCS#8 form. Raises OSError, Encrypted, Unusable."""
    file = Path(path)
    if file.stat().st_mode & 0o077:
        raise Unusable("others may read it: chmod 600")
    data = file.read_bytes()
    try:
        try:
            key = load_ssh_private_key(data, password=None)
        except ValueError:  # not in OpenSSH's own form
            key = load_pem_private_key(data, password=None)  # type: ignore[assignment]
    except TypeError as error:  # how cryptography says that a password is missing
        raise Encrypted from error
    except (ValueError, UnsupportedAlgorithm) as error:
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


def open_agent(config: SshConfig, timeout_s: float, ring: KeyRing) -> SshAgent | None:
    """The configured agent, or None: there is none, or it does not answer, which `ring` then says."""
    if not config.identity_agent:
        return None
    try:
        return SshAgent(config.identity_agent, timeout_s)
    except (OSError, SSHException) as error:
        ring.passed_over.append(
            f"the agent at {config.identity_agent}: {getattr(error, 'strerror', None) or error}"
        )
        return None


def collect(config: SshConfig, agent: SshAgent | None, ring: KeyRing) -> None:
    """Fill `ring`: the agent's keys that IdentityFile names, its other keys, then keys that only a file has."""
    if not config.pubkey_authentication:
        ring.passed_over.append("every key: PubkeyAuthentication is off")
        return
    in_agent = [
        Identity(key, f"the agent ({key.comment})" if key.comment else "the agent")
        for key in (agent.get_keys() if agent else ())
    ]
    named = [key for path in config.identity_files if (key := _public_part(path))]
    chosen = [identity for key in named for identity in in_agent if identity.public == key]
    others = [] if config.identities_only else [identity for identity in in_agent if identity not in chosen]
    held = {identity.public for identity in in_agent}
    ring.identities += [*chosen, *others]
    for path in config.identity_files:
        public = _public_part(path)
        if public and public in held:
            continue
        ring.identities += _from_file(path, config.certificate_files, ring)


def _from_file(path: str, certificates: Sequence[str], ring: KeyRing) -> list[Identity]:
    try:
        key = load_private_key(path)
    except FileNotFoundError:
        return []  # ssh names seven default files, and most people have one
    except OSError as error:
        ring.passed_over.append(f"{path}: {error.strerror}")
        return []
    except Encrypted:
        ring.encrypted.append(path)
        ring.passed_over.append(f"{path}: needs a passphrase, and ddtool never asks for one")
        return []
    except Unusable as error:
        ring.passed_over.append(f"{path}: {error}")
        return []
    identities = []
    for certificate in (*certificates, f"{path}-cert.pub"):
        if _certifies(certificate, key):
            certified = load_private_key(path)
            certified.load_certificate(certificate)
            identities.append(Identity(certified, f"{path} and {certificate}"))
    return [*identities, Identity(key, path)]


def _certifies(certificate: str, key: PKey) -> bool:
    """Whether a certificate is for this key: the key's own numbers are inside it, after the nonce."""
    try:
        known = public_key(Path(certificate).read_text(encoding="utf-8", errors="replace").split()[:2])
    except OSError:
        return False
    name_size = 4 + len(key.get_name())
    return bool(known and known.type.startswith(key.get_name()) and key.asbytes()[name_size:] in known.blob)


def _public_part(path: str) -> PublicKey | None:
    """The public key beside an identity file, or in it: it may be a .pub whose other half the agent holds."""
    for candidate in (f"{path}.pub", path):
        try:
            key = public_key(Path(candidate).read_text(encoding="utf-8", errors="replace").split()[:2])
        except OSError:
            continue
        if key:
            return key
    return None
