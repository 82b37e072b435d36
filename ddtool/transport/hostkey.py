"""Is this the host it claims to be: the key it shows, against known_hosts."""

from __future__ import annotations

from collections.abc import Sequence

from ddtool.errors import HostError, HostKeyChanged, HostKeyUnknown
from ddtool.transport import knownhosts
from ddtool.transport.knownhosts import Entry, PublicKey
from ddtool.transport.sshconfig import SshConfig


def names(config: SshConfig) -> tuple[str, ...]:
    return knownhosts.lookup_names(config.hostname, config.port, config.host_key_alias)


def preferred_algorithms(
    config: SshConfig, entries: Sequence[Entry], supported: Sequence[str]
) -> tuple[str, ...]:
    """Host key algorithms to offer, those of known keys first: else the host may show a key nobody recorded."""
    allowed = config.algorithms.get("keys") or supported
    usable = [algorithm for algorithm in supported if algorithm in allowed] or list(supported)
    known = knownhosts.known_types(entries, names(config))
    return tuple(
        sorted(usable, key=lambda algorithm: _key_type(algorithm) not in known)
    )  # stable: order is kept


def verify(config: SshConfig, entries: Sequence[Entry], key: PublicKey) -> Entry:
    """The known_hosts line that vouches for `key`; none is ever added. Raises HostKeyUnknown, HostKeyChanged."""
    verdict = knownhosts.check(entries, names(config), key)
    if verdict.state == "trusted":
        return verdict.entries[0]
    if verdict.state == "unknown":
        raise _unknown(config, verdict.entries, knownhosts.authorities(entries, names(config)), key)
    known = verdict.entries[0]
    if verdict.state == "revoked":
        raise HostKeyChanged(
            f"{config.name}: the host shows a key that is marked as revoked",
            why=f"{key}, revoked in {known.place}",
            hint="do not connect; ask whoever runs the host for its new key",
        )
    raise _changed(config, verdict.entries, key)


def check_revoked(config: SshConfig, key: PublicKey) -> None:
    """RevokedHostKeys, as a list of public keys.

    Raises HostKeyChanged for a listed key, HostError for a file that cannot be checked: ssh refuses all hosts then,
    and so does ddtool.
    """
    path = config.revoked_host_keys
    if not path:
        return
    try:
        revoked = knownhosts.public_keys(path)
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(
            f"{config.name}: cannot check RevokedHostKeys {path}",
            why=f"{error}; ddtool reads a list of public keys, not a KRL",
            hint="give the list as text, one public key a line",
        ) from error
    if key in revoked:
        raise HostKeyChanged(
            f"{config.name}: the host shows a revoked key",
            why=f"{key}, listed in {path}",
            hint="do not connect; ask whoever runs the host for its new key",
        )


def _unknown(
    config: SshConfig, others: Sequence[Entry], signers: Sequence[Entry], key: PublicKey
) -> HostKeyUnknown:
    looked = ", ".join(config.known_hosts) or "no file"
    why = f"the host shows {key}; {looked} has no key for {names(config)[0]}"
    hint = f"{config.ssh}   # once, by hand: compare the fingerprint, and answer yes"
    if others:
        listed = ", ".join(f"{entry.key} ({entry.place})" for entry in others[:3])
        why = f"the host shows {key}; known for it are only other types: {listed}"
    elif signers:
        why += f"; {signers[0].place} trusts an authority for it, but ddtool does not check host certificates"
        hint = f"ssh-keyscan -p {config.port} {config.hostname}   # compare, then add a line to known_hosts"
    return HostKeyUnknown(f"{config.name}: the host key is not known", why=why, hint=hint)


def _changed(config: SshConfig, known: Sequence[Entry], key: PublicKey) -> HostKeyChanged:
    listed = ", ".join(f"{entry.key} ({entry.place})" for entry in known[:3])
    return HostKeyChanged(
        f"{config.name}: THE HOST KEY HAS CHANGED: someone is between you and the host, or it was installed anew",
        why=f"the host shows {key}; known is {listed}",
        hint=f"if you know why: ssh-keygen -R '{names(config)[0]}' -f '{known[0].path}'   # then: {config.ssh}",
    )


def _key_type(algorithm: str) -> str:
    """The type of the key that an algorithm uses: RSA keys sign with SHA-2 under two other names."""
    return "ssh-rsa" if algorithm in ("rsa-sha2-512", "rsa-sha2-256") else algorithm
