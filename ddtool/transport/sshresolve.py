"""What OpenSSH would do for a name, asked of OpenSSH itself: `ssh -G NAME`.

Include, Match, Host patterns, canonicalisation and defaults are ssh's own work, so that ddtool reaches a host exactly
when `ssh NAME` does.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddtool.errors import ConnectTimeout, HostError, UsageError
from ddtool.transport.sshconfig import SshConfig, parse
from ddtool.transport.text import last_lines

# What ssh itself refuses in a host name, and a blank: none of them may reach a shell through ProxyCommand.
_FORBIDDEN = re.compile(r"[\s\x00-\x1f\x7f'\"`$\\;&<>|(){}]")

_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>.+)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:@/]+))(?::(?P<port>\d+))?/?"
)

# `ssh -G` expands %C here and nowhere else. A ControlPath of the user plays no part.
_SHOW_CONNECTION = ("-o", "ControlPath=%C")


def resolve(
    name: str, ssh_config: str | None = None, *, environ: Mapping[str, str], timeout_s: float = 15
) -> SshConfig:
    """Ask `ssh -G` about `name`: an alias, a host name, user@host, or ssh://user@host:port.

    Raises UsageError for a name that ssh could take for something else, HostError when ssh is missing or refuses
    its configuration, ConnectTimeout when a `Match exec` of the configuration does not return.
    """
    check_name(name)
    text, _ = ask_ssh(name, ["--", name], ssh_config, environ, timeout_s)
    config = parse(name, ssh_config, text, environ)
    return _whole_way(config, environ, timeout_s) if config.proxy_jump else config


def _whole_way(config: SshConfig, environ: Mapping[str, str], timeout_s: float) -> SshConfig:
    """The first jump host may be reached through others, and those through others again: ssh goes that way."""
    hops, known = _hops(config), {}
    while True:
        first = known[hops[0]] = resolve_hop(
            hops[0], config.config_file, environ=environ, timeout_s=timeout_s
        )
        before = _hops(first)
        if again := next((hop for hop in before if hop in hops), None):
            raise HostError(
                f"{config.name}: its jump hosts go round in a circle",
                why=f"{hops[0]} is reached through {first.proxy_jump}, and {again} is on the way already",
                hint=f"set ProxyJump none for {hops[0]}; see: {shlex.join(['ssh', '-G', hops[0]])}",
            )
        if not before:
            return replace(config, proxy_jump=",".join(hops), known_hops=known)
        hops = [*before, *hops]


def _hops(config: SshConfig) -> list[str]:
    return config.proxy_jump.split(",") if config.proxy_jump else []


def resolve_hop(
    hop: str, ssh_config: str | None, *, environ: Mapping[str, str], timeout_s: float = 15
) -> SshConfig:
    """A host of a ProxyJump chain, `[ssh://][user@]host[:port]`, as ssh will resolve it. Raises as resolve()."""
    text, _ = ask_ssh(hop, destination(hop), ssh_config, environ, timeout_s)
    return parse(hop, ssh_config, text, environ)


def resolve_hops(config: SshConfig, *, environ: Mapping[str, str]) -> list[SshConfig]:
    """The hosts of the ProxyJump chain, in order; the first may have a ProxyCommand of its own."""
    known = config.known_hops
    return [known.get(hop) or resolve_hop(hop, config.config_file, environ=environ) for hop in _hops(config)]


def ask_ssh(
    name: str,
    arguments: Sequence[str],
    ssh_config: str | None,
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    verbose: bool = False,
) -> tuple[str, str]:
    """stdout and stderr of `ssh -G`, which connects to nothing. `verbose`: stderr says what was read."""
    options = [
        *(["-F", ssh_config] if ssh_config else []),
        *(["-vvv"] if verbose else []),
        *_SHOW_CONNECTION,
    ]
    command = ["ssh", "-G", *options, *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=dict(environ),
            check=False,
        )
    except FileNotFoundError as error:
        raise HostError(
            "no ssh on this machine",
            why="ddtool asks `ssh -G` how a host is reached",
            hint="install the OpenSSH client",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConnectTimeout(
            f"ssh did not resolve {name} within {timeout_s:g} s",
            why="a `Match exec` command in the ssh configuration does not return",
            hint=shlex.join(command),
        ) from error
    stderr = done.stderr.decode(errors="replace")
    if done.returncode:
        raise HostError(
            f"ssh refuses its configuration for {name}",
            why=last_lines(stderr, 3) or f"exit status {done.returncode}",
            hint=shlex.join(command),
        )
    return done.stdout.decode(errors="replace"), stderr


def destination(hop: str) -> list[str]:
    """`[ssh://][user@]host[:port]` as arguments: ssh takes a port only in a URI, and no IPv6 address there (9.2)."""
    match = _HOP.fullmatch(hop)
    if not match:
        return ["--", hop]
    user, host, port = match["user"], match["v6"] or match["host"], match["port"]
    return [*(["-l", user] if user else []), *(["-p", port] if port else []), "--", host]


def check_name(name: str) -> None:
    """Refuse a name that ssh would read as an option or that a shell could read as a command."""
    if not name or name.startswith("-") or "@-" in name or "//-" in name or _FORBIDDEN.search(name):
        raise UsageError(
            f"{name!r} is not a host",
            hint="give a Host of your ssh configuration, user@host, or ssh://user@host:port",
        )
