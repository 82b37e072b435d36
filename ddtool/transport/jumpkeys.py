"""Keys with a passphrase on the way: a jump host's ssh cannot ask, so ddtool asks and signs for it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paramiko import PKey

from ddtool.errors import AuthenticationFailed, HostError
from ddtool.transport.keyfiles import Unusable, unlock
from ddtool.transport.keys import collect
from ddtool.transport.passphrase import Ask
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.sshresolve import resolve_hop

TIMEOUT_S = 15.0


@dataclass
class _Unlocked:
    """What a person has unlocked for a jump host: files, and the agent that it has besides."""

    agent: str | None
    keys: dict[str, PKey] = field(default_factory=dict)


# A link that breaks is joined again without a second question. Forgotten with the process.
_unlocked: dict[tuple[str, str | None], _Unlocked] = {}


@contextlib.contextmanager
def agents(config: SshConfig) -> Iterator[dict[str, str]]:
    """Jump host → socket of an agent, for those for which a person has unlocked a key."""
    with contextlib.ExitStack() as stack:
        sockets = {}
        for hop in config.proxy_jump.split(",") if config.proxy_jump else ():
            if held := _unlocked.get((hop, config.config_file)):
                from ddtool.transport.keyserver import serving  # seldom needed, and every start would pay

                sockets[hop] = stack.enter_context(serving(list(held.keys.values()), held.agent))
        yield sockets


def unlocked(
    config: SshConfig, hop: str | None, failure: HostError, environ: Mapping[str, str], ask: Ask
) -> bool:
    """Whether a person has unlocked one more key for the jump host `hop`, which did not let us log in.

    Otherwise `failure` is told the next command.
    """
    if not hop or not isinstance(failure, AuthenticationFailed):
        return False
    found = config.known_hops.get(hop) or resolve_hop(hop, config.config_file, environ=environ)
    ring, agent = collect(found, TIMEOUT_S)
    if agent:
        agent.close()
    held = _unlocked.get((hop, config.config_file)) or _Unlocked(found.identity_agent)
    locked = [path for path in ring.encrypted if path not in held.keys]
    for path in locked:
        with contextlib.suppress(OSError, Unusable):  # told as passed over where it is the host's own key
            if key := unlock(path, ask):
                held.keys[path] = key
                _unlocked[hop, config.config_file] = held
                return True
    if locked:
        failure.why = f"{failure.why}\npassed over: {', '.join(locked)}: needs a passphrase"
        start = "" if found.identity_agent else "eval $(ssh-agent); "
        failure.hint = f"{start}ssh-add {shlex.join(locked)}   # for the jump host {hop}; or: {failure.hint}"
    return False
