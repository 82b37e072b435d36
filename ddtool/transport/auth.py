"""Log in with keys, as OpenSSH would, and say what was tried when that fails. No passwords, no forwarding."""

from __future__ import annotations

import paramiko

from ddtool.errors import AuthenticationFailed
from ddtool.transport.dial import Deadline
from ddtool.transport.keys import Identity, KeyRing, collect, open_agent
from ddtool.transport.sshconfig import SshConfig

PHASE = "the host checked its key, but did not answer the login in time"


def authenticate(transport: paramiko.Transport, config: SshConfig, deadline: Deadline) -> Identity | None:
    """The key that the host accepted, or None where it wants no key.

    Raises AuthenticationFailed with every key that was tried or passed over, ConnectTimeout.
    """
    ring = KeyRing()
    agent = open_agent(config, deadline.remaining(), ring)
    try:
        collect(config, agent, ring)
        return _offer_all(transport, config, deadline, ring)
    finally:
        if agent:
            agent.close()


def _offer_all(
    transport: paramiko.Transport, config: SshConfig, deadline: Deadline, ring: KeyRing
) -> Identity | None:
    tried: list[str] = []
    for identity in ring.identities:
        try:
            transport.auth_timeout = deadline.remaining()
            further = transport.auth_publickey(config.user, identity.key)
        except paramiko.BadAuthenticationType as error:
            raise _no_public_keys(config, error.allowed_types) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            if deadline.passed:
                raise deadline.error(config, PHASE) from error
            tried.append(f"{identity}")
            if not transport.is_active():
                raise _cut_off(config, ring, tried, str(error)) from error
            continue
        if transport.is_authenticated():
            return identity
        tried.append(f"{identity}: accepted, but the host also wants {' or '.join(further)}")
    _offer_nothing(transport, config, deadline, ring, tried)
    return None


def _offer_nothing(
    transport: paramiko.Transport, config: SshConfig, deadline: Deadline, ring: KeyRing, tried: list[str]
) -> None:
    """The method "none": some hosts know the user by the network alone, and the others say what they accept."""
    try:
        transport.auth_timeout = deadline.remaining()
        transport.auth_none(config.user)
    except paramiko.BadAuthenticationType as error:
        raise _failed(config, ring, tried, f"it accepts {', '.join(error.allowed_types)}") from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        if deadline.passed:
            raise deadline.error(config, PHASE) from error
        raise _failed(config, ring, tried, None) from error
    if not transport.is_authenticated():
        raise _failed(config, ring, tried, None)


def _failed(config: SshConfig, ring: KeyRing, tried: list[str], accepts: str | None) -> AuthenticationFailed:
    lines = [f"tried: {line}" for line in tried] or ["tried: no key; there was none to offer"]
    lines += [f"passed over: {line}" for line in ring.passed_over]
    if accepts:
        lines.append(accepts)
    unlock = ring.add_command
    if unlock and not config.identity_agent:
        unlock = f"eval $(ssh-agent); {unlock}"
    return AuthenticationFailed(
        f"{config.where} does not let us log in",
        why="\n".join(lines),
        hint=unlock
        or f"{config.ssh} -v -o BatchMode=yes   # User, IdentityFile, or the key on the host may be missing",
    )


def _cut_off(config: SshConfig, ring: KeyRing, tried: list[str], reason: str) -> AuthenticationFailed:
    error = _failed(config, ring, tried, f"then the host closed the connection ({reason})")
    if len(tried) > 1:
        error.hint = (
            "too many keys are offered before the right one: "
            f"set IdentitiesOnly yes and IdentityFile for {config.name} in the ssh configuration"
        )
    return error


def _no_public_keys(config: SshConfig, allowed: list[str]) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"{config.where} accepts no keys",
        why=f"it accepts {', '.join(allowed)} only, and ddtool never asks for a password",
        hint="set `PubkeyAuthentication yes` for this user in the host's sshd_config",
    )
