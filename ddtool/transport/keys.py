"""What there is to log in with, in the order in which OpenSSH offers it: certificates, the agent's keys, files."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paramiko import PKey
from paramiko.pkey import PublicBlob

from ddtool.transport import certificates
from ddtool.transport.certificates import Certificate
from ddtool.transport.keyagent import AgentFailure, HeldKey, SshAgent, open_agent
from ddtool.transport.keyfiles import (
    Encrypted,
    Unusable,
    load_private_key,
    public_key_in,
    public_part,
    unlock,
)
from ddtool.transport.knownhosts import PublicKey
from ddtool.transport.passphrase import Ask

if TYPE_CHECKING:
    from ddtool.transport.sshconfig import SshConfig


@dataclass(frozen=True)
class Identity:
    """A key that can be offered, alone or with a certificate. `source`: where it came from, in the user's words."""

    key: PKey
    public: PublicKey  # the bare key
    source: str
    certificate: Certificate | None = None
    doubt: str | None = None  # why the host will most likely refuse the certificate

    def __str__(self) -> str:
        if not self.certificate:
            return f"{self.public} from {self.source}"
        doubt = f", which {self.doubt}" if self.doubt else ""
        return f"{self.public} from {self.source} with {self.certificate}{doubt}"


@dataclass
class KeyRing:
    """What there is to offer, in order, and what was passed over and why (one sentence each)."""

    identities: list[Identity] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    encrypted: list[str] = field(default_factory=list)  # files that need a passphrase

    @property
    def add_command(self) -> str | None:
        return f"ssh-add {shlex.join(self.encrypted)}" if self.encrypted else None


def collect(config: SshConfig, timeout_s: float) -> tuple[KeyRing, SshAgent | None]:
    """The keys of the agent and of files, and the agent that must stay open while they are offered."""
    ring = KeyRing()
    if not config.pubkey_authentication:
        ring.passed_over.append("every key: PubkeyAuthentication is off")
        return ring, None
    agent, held = None, []
    try:
        agent = open_agent(config, timeout_s)
        held = agent.held() if agent else []
    except AgentFailure as error:
        ring.passed_over.append(
            f"the agent at {config.identity_agent}: {getattr(error, 'strerror', None) or error}"
        )
    for option in config.not_obeyed:
        name, _, library = option.partition(" ")
        if name == "pkcs11provider":
            ring.passed_over.append(
                f"the keys of PKCS11Provider: they work through the agent: ssh-add -s {library}"
            )
    found = [*_from_agent(config, held, ring), *_from_files(config, held, ring)]
    ring.identities = [
        identity
        for identity in sorted(found, key=lambda identity: identity.certificate is None)  # stable
        if _accepted(config, identity, ring)
    ]
    return ring, agent


def unlocked(config: SshConfig, path: str, ask: Ask, ring: KeyRing) -> list[Identity]:
    """The identities of an encrypted file, once a person has said its passphrase; else why not goes to the ring."""
    try:
        key = unlock(path, ask)
    except (OSError, Unusable) as error:
        ring.passed_over.append(f"{path}: {error}")
        return []
    if key:
        return _of_file(config, path, key, ring)
    ring.passed_over.append(f"{path}: needs a passphrase, and nobody at a terminal gave it")
    return []


def _from_agent(config: SshConfig, held: list[HeldKey], ring: KeyRing) -> list[Identity]:
    """The agent's keys that IdentityFile or CertificateFile names, then its others unless IdentitiesOnly."""
    named = [public for path in config.identity_files if (public := public_part(path))]
    files = list(_certificate_files(config))
    named += [public for _, public in files]
    chosen = [key for public in dict.fromkeys(named) for key in held if key.held == public]
    others = [] if config.identities_only else [key for key in held if key.held not in named]
    identities, own = [], [key.certificate for key in held]
    for key in (*chosen, *others):
        source = f"the agent ({key.comment})" if key.comment else "the agent"
        if key.certificate:
            identities += _with_certificate(config, key, key.certificate, source, ring)
            continue
        for path, certificate in files:
            if certificate not in own and _certifies(certificate, key.held):
                offered = key.certified_by(certificate)
                identities += _with_certificate(config, offered, certificate, f"{source} and {path}", ring)
        identities.append(Identity(key, key.held, source))
    return identities


def _from_files(config: SshConfig, held: list[HeldKey], ring: KeyRing) -> list[Identity]:
    """The keys that only a file has."""
    in_agent = {key.held for key in held}
    identities = []
    for path in config.identity_files:
        if public_part(path) in in_agent:
            continue
        try:
            identities += _of_file(config, path, load_private_key(path), ring)
        except FileNotFoundError:
            continue  # ssh names seven default files, and most people have one
        except OSError as error:
            ring.passed_over.append(f"{path}: {error.strerror}")
        except Encrypted:
            ring.encrypted.append(path)
        except Unusable as error:
            ring.passed_over.append(f"{path}: {error}")
    return identities


def _of_file(config: SshConfig, path: str, key: PKey, ring: KeyRing) -> list[Identity]:
    public = PublicKey(key.get_name(), key.asbytes())
    identities = []
    for file, certificate in _certificate_files(config):
        if _certifies(certificate, public):
            offered = copy(key)
            offered.public_blob = PublicBlob(certificate.type, certificate.blob)
            identities += _with_certificate(config, offered, certificate, f"{path} and {file}", ring)
    return [*identities, Identity(key, public, path)]


def _with_certificate(
    config: SshConfig, key: PKey, certificate: PublicKey, source: str, ring: KeyRing
) -> list[Identity]:
    try:
        read = certificates.read(certificate)
    except certificates.Unreadable as error:
        ring.passed_over.append(f"the certificate of {source}: {error}")
        return []
    doubt = certificates.user_problem(read, config.user, time.time())
    return [Identity(key, read.key, source, read, doubt)]


def _certificate_files(config: SshConfig) -> Iterable[tuple[str, PublicKey]]:
    paths = [*config.certificate_files, *(f"{path}-cert.pub" for path in config.identity_files)]
    for path in dict.fromkeys(paths):
        key = public_key_in(path)
        if key and key.type.endswith(certificates.SUFFIX):
            yield path, key


def _certifies(certificate: PublicKey, key: PublicKey) -> bool:
    """Whether a certificate is for this key: the key's own numbers are inside it, after the nonce."""
    return certificate.type.startswith(key.type) and key.blob[4 + len(key.type) :] in certificate.blob


def _accepted(config: SshConfig, identity: Identity, ring: KeyRing) -> bool:
    """Whether PubkeyAcceptedAlgorithms lets the key be offered. RSA keys sign with SHA-2 under two other names."""
    allowed = config.algorithms.get("pubkeys")
    kind = identity.public.type
    algorithms = ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
    suffix = certificates.SUFFIX if identity.certificate else ""
    bits = identity.public.rsa_bits
    if bits and bits < config.required_rsa_bits:
        ring.passed_over.append(f"{identity}: {bits} bits, and RequiredRSASize is {config.required_rsa_bits}")
        return False
    if allowed is None or any(algorithm + suffix in allowed for algorithm in algorithms):
        return True
    ring.passed_over.append(f"{identity}: PubkeyAcceptedAlgorithms does not allow {kind}{suffix}")
    return False
