"""Why a ProxyJump or ProxyCommand did not carry the connection, read from its last words and its exit status."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ddtool.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    NameNotResolved,
)
from ddtool.transport.sshconfig import SshConfig, bracketed
from ddtool.transport.text import last_lines

SHOWN_LINES = 6

# What OpenSSH says when it cannot get through. A changed key's text contains the unknown key's, so it comes first.
_CAUSES: tuple[tuple[str, type[HostError], str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Offending .* key in",
        HostKeyChanged,
        "its host key has changed",
    ),
    (r"revoked by file|REVOKED HOST KEY", HostKeyChanged, "its host key is revoked"),
    (
        r"Host key verification failed|No .* host key is known for",
        HostKeyUnknown,
        "its host key is not known",
    ),
    (
        r"Could not resolve hostname|Name or service not known|name resolution",
        NameNotResolved,
        "a name does not resolve",
    ),
    (
        r"Permission denied \(|Too many authentication failures",
        AuthenticationFailed,
        "it does not let us log in",
    ),
    (r"administratively prohibited", HostError, "it forwards no connections (AllowTcpForwarding)"),
    (r"[Cc]onnection refused", ConnectionRefused, "a connection is refused"),
    (r"[Tt]imed out|[Tt]imeout", ConnectTimeout, "a connection times out"),
    (r"No route to host|Network is unreachable", HostError, "there is no route"),
)
# A hop whose own ssh says this was not the one that failed: the hop before it was.
_FELL_WITH_ITS_JUMP = "UNKNOWN port 65535"
_CANNOT_GO_ON = re.compile(r"open failed: (?:connect failed|administratively prohibited)")


def explain_proxy_failure(
    config: SshConfig, said: str, status: int | None, lost: ConnectionLost
) -> HostError:
    """The error for a proxy that wrote `said` on stderr and ended with `status` (None: it still runs).

    `lost` is what the connection itself noticed: all there is to say where the proxy did its part.
    """
    shown = last_lines(said, SHOWN_LINES)
    if not shown and not status:
        lost.message = f"{lost.message}, through {config.proxy_jump or 'ProxyCommand'}"
        return lost
    if config.proxy_jump:
        return _jump_failure(config, said, shown, status)
    cls, cause = _cause(said)
    ended = "" if status is None else f"\n{_ended(status)}"
    return cls(
        f"{config.name}: no connection through ProxyCommand{cause}",
        why=f"{shown or 'it wrote nothing'}{ended}",
        hint=f"{config.proxy_command}   # by hand: the host's SSH banner must appear",
    )


def failed_hop(config: SshConfig, said: str) -> str | None:
    """The jump host that was in the way; None without any."""
    hops = config.proxy_jump.split(",") if config.proxy_jump else []
    return hops[max(0, _failed_index(hops, said))] if hops else None


def _failed_index(hops: Sequence[str], said: str) -> int:
    """Below 0: the first hop has a ProxyCommand of its own, an ssh that failed."""
    return len(hops) - 1 - said.count(_FELL_WITH_ITS_JUMP)


def _jump_failure(config: SshConfig, said: str, shown: str, status: int | None) -> HostError:
    hops = (config.proxy_jump or "").split(",")
    failed = _failed_index(hops, said)
    index = max(0, failed)
    onward = [*hops[1:], f"{bracketed(config.hostname)}:{config.port}"][index]
    cls, cause = _cause(said)
    via = f" (hop {index + 1} of {len(hops)})" if len(hops) > 1 else ""
    before = f"-J {','.join(hops[:index])} " if index else ""
    if failed >= 0 and _CANNOT_GO_ON.search(said):
        problem = f"cannot reach {onward}{cause}"
        hint = f"ssh {before}{hops[index]}   # and see from there whether {onward} answers"
    else:
        problem = f"is in the way{cause}"
        hint = f"ssh {before}{hops[index]}   # must work without a question"
    return cls(
        f"{config.name}: the jump host {hops[index]}{via} {problem}",
        why=shown or _ended(status),
        hint=hint,
    )


def _cause(said: str) -> tuple[type[HostError], str]:
    for pattern, cls, cause in _CAUSES:
        if re.search(pattern, said):
            return cls, f": {cause}"
    return ConnectionLost, ""


def _ended(status: int | None) -> str:
    if status is None:
        return "it closed the connection"
    return f"it was ended by signal {-status}" if status < 0 else f"it ended with exit status {status}"


def fdpass_refused(config: SshConfig) -> HostError:
    return HostError(
        f"{config.name}: ProxyUseFdpass is not supported",
        why="with it the ProxyCommand hands over a socket instead of carrying the bytes",
        hint=f"set ProxyUseFdpass no, and drop -F from: {shlex.quote(config.proxy_command or '')}",
    )
