"""Is this the host it claims to be: the key it shows, or the authority that certified it, against known_hosts."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass

import paramiko

from ddtool.errors import HostError, HostKeyChanged, HostKeyUnknown
from ddtool.transport import certificates, hostcommand, knownhosts
from ddtool.transport.certificates import Certificate
from ddtool.transport.dial import Deadline
from ddtool.transport.knownhosts import Entry, PublicKey
from ddtool.transport.revoked import revoking_file
from ddtool.transport.sshconfig import SshConfig


@dataclass(frozen=True)
class Shown:
    """What the host proved to own: a key, perhaps with a certificate. `damage`: why its certificate is unreadable."""

    key: PublicKey
    certificate: Certificate | None = None
    whole: PublicKey | None = None  # the certificate as a public key, as it travelled
    damage: str | None = None

    def __str__(self) -> str:
        return f"{self.key} with {self.certificate}" if self.certificate else str(self.key)


def shown(key: paramiko.PKey) -> Shown:
    """The key of a finished key exchange: `key` is the one whose signature the exchange has checked."""
    bare, blob = PublicKey(key.get_name(), key.asbytes()), key.public_blob
    if blob is None:
        return Shown(bare)
    whole = PublicKey(blob.key_type, blob.key_blob)
    try:
        certificate = certificates.read(whole)
    except certificates.Unreadable as error:
        return Shown(bare, whole=whole, damage=str(error))
    if certificate.key != bare:
        return Shown(bare, whole=whole, damage="it certifies another key")
    return Shown(bare, certificate, whole)


def names(config: SshConfig) -> tuple[str, ...]:
    return knownhosts.lookup_names(config.hostname, config.port, config.host_key_alias)


def told(config: SshConfig, deadline: Deadline, host: Shown | None = None) -> list[Entry]:
    """What KnownHostsCommand says before the host has shown its key, and, with `host`, after that."""
    name, tokens = names(config)[0], {**hostcommand.BEFORE_THE_KEY, "H": config.hostname}
    if host:
        whole = host.whole or host.key
        blob = base64.b64encode(whole.blob).decode()
        tokens = {"I": "HOSTNAME", "H": name, "f": host.key.fingerprint, "t": whole.type, "K": blob}
    return hostcommand.lines(config, name, tokens, deadline.remaining())


def _bare_name(config: SshConfig) -> str:
    """The name that a certificate must be for: without a port."""
    return names(config)[-1]


def preferred_algorithms(
    config: SshConfig, entries: Sequence[Entry], supported: Sequence[str]
) -> tuple[str, ...]:
    """Host key algorithms to offer: certificates where an authority is trusted for the host, then those of keys that
    are known, or the host may show a key nobody recorded. Raises HostError when the configuration leaves none.
    """
    offered = [*supported, *(algorithm + certificates.SUFFIX for algorithm in supported)]
    allowed = config.algorithms.get("keys") or offered
    usable = [algorithm for algorithm in offered if algorithm in allowed]
    if not usable:
        raise no_algorithm(config, "host key algorithms", allowed, supported)
    known = knownhosts.known_types(entries, names(config))
    certifiable = bool(knownhosts.authorities(entries, names(config)))

    def rank(algorithm: str) -> int:
        if algorithm.endswith(certificates.SUFFIX):
            return 0 if certifiable else 3
        return 1 if _key_type(algorithm) in known else 2

    return tuple(sorted(usable, key=rank))  # stable: order is kept


def no_algorithm(config: SshConfig, kind: str, allowed: Sequence[str], supported: Sequence[str]) -> HostError:
    return HostError(
        f"{config.name}: the ssh configuration leaves no {kind} that ddtool has",
        why=f"it allows {', '.join(allowed)}; ddtool has {', '.join(supported)}",
        hint=f"allow one of them for this host; see: ssh -G {config.name}",
    )


def verify(config: SshConfig, entries: Sequence[Entry], host: Shown) -> Entry:
    """The known_hosts line that vouches for the host: an authority's, or the key's own; none is ever added.

    A certificate that proves nothing leaves the bare key to be known, as in OpenSSH. Raises HostKeyUnknown,
    HostKeyChanged, HostError for a RevokedHostKeys file that cannot be checked and for an RSA key that is too short.
    """
    _refuse_revoked(config, entries, host)
    _refuse_short(config, host)
    trouble = None
    if host.certificate:
        signer, trouble = _certified(config, entries, host.certificate)
        if signer:
            return signer
    elif host.damage:
        trouble = f"cannot be read: {host.damage}"
    verdict = knownhosts.check(entries, names(config), host.key)
    if verdict.state == "trusted":
        return verdict.entries[0]
    if verdict.state == "changed":
        raise _changed(config, verdict.entries, host.key)
    if trouble:
        raise _bad_certificate(config, host, trouble)
    raise _unknown(config, verdict.entries, knownhosts.authorities(entries, names(config)), host.key)


def _certified(
    config: SshConfig, entries: Sequence[Entry], certificate: Certificate
) -> tuple[Entry | None, str | None]:
    """The line of the authority that vouches for the host, or what is wrong with the certificate."""
    trusted = knownhosts.authorities(entries, names(config))
    if not trusted:
        return None, None
    signer = next((entry for entry in trusted if entry.key == certificate.authority), None)
    if not signer:
        listed = ", ".join(f"{entry.key} ({entry.place})" for entry in trusted[:3])
        return None, f"is signed by {certificate.authority}; trusted for this host is {listed}"
    signatures = config.algorithms.get("authorities")
    problem = certificates.host_problem(certificate, _bare_name(config), time.time(), signatures)
    return (None, problem) if problem else (signer, None)


def _refuse_revoked(config: SshConfig, entries: Sequence[Entry], host: Shown) -> None:
    """@revoked lines, then RevokedHostKeys: they may name the key or the authority that certified it."""
    keys = [host.key, *([host.certificate.authority] if host.certificate else [])]
    for key in keys:
        if revoked := knownhosts.revocations(entries, names(config), key):
            raise _revoked(config, key, host, revoked[0].place)
    if file := revoking_file(config, keys, host.whole or host.key):
        raise _revoked(config, host.key, host, file)


def _refuse_short(config: SshConfig, host: Shown) -> None:
    bits = host.key.rsa_bits
    if bits and bits < config.required_rsa_bits:
        raise HostError(
            f"{config.name}: the host key is too short",
            why=f"it is {host.key} of {bits} bits, and RequiredRSASize is {config.required_rsa_bits}",
            hint="record a key of another type that the host has, or have it get a longer one",
        )


def _revoked(config: SshConfig, key: PublicKey, host: Shown, place: str) -> HostKeyChanged:
    what = "a key that is revoked" if key == host.key else "a certificate of an authority that is revoked"
    return HostKeyChanged(
        f"{config.name}: the host shows {what}",
        why=f"{key}, revoked in {place}",
        hint="do not connect; ask whoever runs the host for its new key",
    )


def _bad_certificate(config: SshConfig, host: Shown, trouble: str) -> HostKeyUnknown:
    name = _bare_name(config)
    return HostKeyUnknown(
        f"{config.name}: the host's certificate {trouble}",
        why=f"the host shows {host}; and {_asked(config)} does not have the bare key",
        hint=f"have the authority sign it anew: ssh-keygen -s AUTHORITY -h -I {name} -n {name} HOST_KEY.pub",
    )


def _unknown(
    config: SshConfig, others: Sequence[Entry], signers: Sequence[Entry], key: PublicKey
) -> HostKeyUnknown:
    why = f"the host shows {key}; {_asked(config)} has no key for {names(config)[0]}"
    hint = f"{config.ssh}   # once, by hand: compare the fingerprint, and answer yes"
    if others:
        listed = ", ".join(f"{entry.key} ({entry.place})" for entry in others[:3])
        why = f"the host shows {key}; known for it are only other types: {listed}"
    elif signers:
        why += f"; {signers[0].place} trusts an authority for it, but the host shows no certificate"
        hint = "set HostCertificate in the host's sshd_config, or add a line for its key to known_hosts"
    return HostKeyUnknown(f"{config.name}: the host key is not known", why=why, hint=hint)


def _asked(config: SshConfig) -> str:
    """Where a key was looked for."""
    command, places = config.known_hosts_command, list(config.known_hosts)
    if command:
        obstacle = hostcommand.obstacle(command)
        places.append(f"KnownHostsCommand (not run: {obstacle})" if obstacle else "KnownHostsCommand")
    return ", ".join(places) or "no file"


def _changed(config: SshConfig, known: Sequence[Entry], key: PublicKey) -> HostKeyChanged:
    listed = ", ".join(f"{entry.key} ({entry.place})" for entry in known[:3])
    forget = f"ssh-keygen -R '{names(config)[0]}' -f '{known[0].path}'   # then: {config.ssh}"
    if known[0].path == hostcommand.PLACE:
        forget = "have KnownHostsCommand print the new key"
    return HostKeyChanged(
        f"{config.name}: THE HOST KEY HAS CHANGED: someone is between you and the host, or it was installed anew",
        why=f"the host shows {key}; known is {listed}",
        hint=f"if you know why: {forget}",
    )


def _key_type(algorithm: str) -> str:
    """The type of the key that an algorithm uses: RSA keys sign with SHA-2 under two other names."""
    return "ssh-rsa" if algorithm in ("rsa-sha2-512", "rsa-sha2-256") else algorithm
