"""Log in with keys, as OpenSSH would, and say what was tried when that fails. No passwords, no forwarding."""

from __future__ import annotations

from dataclasses import dataclass, field

import paramiko

from ddtool.errors import AuthenticationFailed
from ddtool.transport.dial import Deadline
from ddtool.transport.keys import Identity, KeyRing, collect, unlocked
from ddtool.transport.passphrase import Ask
from ddtool.transport.sshconfig import SshConfig

PHASE = "the host checked its key, but did not answer the login in time"


@dataclass
class _Attempt:
    """A login under way: what the host has refused so far."""

    transport: paramiko.Transport
    config: SshConfig
    deadline: Deadline
    ring: KeyRing
    tried: list[str] = field(default_factory=list)


def authenticate(
    transport: paramiko.Transport, config: SshConfig, deadline: Deadline, ask: Ask
) -> Identity | None:
    """The key that the host accepted, or None where it wants no key.

    Files that need a passphrase come last, and only then is a person asked. Raises AuthenticationFailed with every
    key that was tried or passed over, ConnectTimeout.
    """
    ring, agent = collect(config, deadline.remaining())
    attempt = _Attempt(transport, config, deadline, ring)
    try:
        for identity in ring.identities:
            if _offer(attempt, identity):
                return identity
        for path in ring.encrypted:
            with deadline.paused():
                identities = unlocked(config, path, ask, ring)
            for identity in identities:
                if _offer(attempt, identity):
                    return identity
        _offer_nothing(attempt)
        return None
    finally:
        if agent:
            agent.close()


def _offer(attempt: _Attempt, identity: Identity) -> bool:
    transport, config = attempt.transport, attempt.config
    try:
        transport.auth_timeout = attempt.deadline.remaining()
        further = transport.auth_publickey(config.user, identity.key)
    except paramiko.BadAuthenticationType as error:
        raise _no_public_keys(config, error.allowed_types) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        if attempt.deadline.passed:
            raise attempt.deadline.error(config, PHASE) from error
        attempt.tried.append(f"{identity}")
        if isinstance(error, EOFError) or not transport.is_active():
            raise _cut_off(attempt, str(error)) from error
        return False
    if transport.is_authenticated():
        return True
    attempt.tried.append(f"{identity}: accepted, but the host also wants {' or '.join(further)}")
    return False


def _offer_nothing(attempt: _Attempt) -> None:
    """The method "none": some hosts know the user by the network alone, and the others say what they accept."""
    transport = attempt.transport
    try:
        transport.auth_timeout = attempt.deadline.remaining()
        transport.auth_none(attempt.config.user)
    except paramiko.BadAuthenticationType as error:
        raise _failed(attempt, f"it accepts {', '.join(error.allowed_types)}") from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        if attempt.deadline.passed:
            raise attempt.deadline.error(attempt.config, PHASE) from error
        raise _failed(attempt, None) from error
    if not transport.is_authenticated():
        raise _failed(attempt, None)


def _failed(attempt: _Attempt, accepts: str | None) -> AuthenticationFailed:
    config, ring = attempt.config, attempt.ring
    lines = [f"tried: {line}" for line in attempt.tried] or ["tried: no key; there was none to offer"]
    lines += [f"passed over: {line}" for line in ring.passed_over]
    if accepts:
        lines.append(accepts)
    unlock = ring.add_command
    if unlock and not config.identity_agent:
        unlock = f"eval $(ssh-agent); {unlock}"
    return AuthenticationFailed(
        f"{config.where} does not let us log in",
        why="\n".join(lines),
        hint=_renewal(ring)
        or unlock
        or f"{config.ssh} -v -o BatchMode=yes   # User, IdentityFile, or the key on the host may be missing",
    )


def _renewal(ring: KeyRing) -> str | None:
    """Where a certificate is at fault, and there is no other way in that has not been tried."""
    doubtful = next((identity for identity in ring.identities if identity.doubt), None)
    if not doubtful or ring.encrypted:
        return None
    return f"get a new certificate from its authority: {doubtful.source} {doubtful.doubt}"


def _cut_off(attempt: _Attempt, reason: str) -> AuthenticationFailed:
    error = _failed(attempt, f"then the host closed the connection ({reason})")
    if len(attempt.tried) > 1:
        error.hint = (
            "too many keys are offered before the right one: set IdentitiesOnly yes and IdentityFile "
            f"for {attempt.config.name} in the ssh configuration"
        )
    return error


def _no_public_keys(config: SshConfig, allowed: list[str]) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"{config.where} accepts no keys",
        why=f"it accepts {', '.join(allowed)} only, and ddtool never asks for a password",
        hint="set `PubkeyAuthentication yes` for this user in the host's sshd_config",
    )
