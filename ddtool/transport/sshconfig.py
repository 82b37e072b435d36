"""What `ssh -G NAME` prints, as the settings of a connection. No ssh_config is parsed here."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddtool.transport.sshtokens import Tokens

# Set by the user, meant to change the connection, and not done here. `doctor ssh` shows them.
NOT_OBEYED = ("bindinterface", "pkcs11provider", "proxyusefdpass", "remotecommand")


@dataclass(frozen=True)
class KnownHostsCommand:
    """A program that prints lines of known_hosts. `tokens` and more, which only a connection knows, go into `text`."""

    text: str
    tokens: Tokens


@dataclass(frozen=True)
class SshConfig:
    """One host as `ssh -G` resolved it. Paths are expanded; nothing was opened."""

    name: str  # as the operator typed it
    config_file: str | None  # what -F names, if anything
    hostname: str
    port: int
    user: str
    addressfamily: str = "any"  # any, inet or inet6
    bindaddress: str | None = None
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None  # the agent's socket, None without an agent
    pubkey_authentication: bool = True
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    known_hosts_command: KnownHostsCommand | None = None
    revoked_host_keys: str | None = None
    host_key_alias: str | None = None
    proxy_jump: str | None = None  # the whole way, with the jump hosts of jump hosts
    known_hops: Mapping[str, SshConfig] = field(default_factory=dict)  # those that were resolved on the way
    proxy_command: str | None = None
    connect_timeout_s: float | None = None
    server_alive_interval_s: int = 0  # 0: the user asked for none
    server_alive_count: int = 3
    algorithms: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # kex, ciphers, macs, keys, authorities, pubkeys
    required_rsa_bits: int = 0
    not_obeyed: tuple[str, ...] = ()  # options in force that ddtool does not act on

    @property
    def known_hosts(self) -> tuple[str, ...]:
        return (*self.user_known_hosts, *self.global_known_hosts)

    @property
    def not_obeyed_names(self) -> tuple[str, ...]:
        return tuple(option.partition(" ")[0] for option in self.not_obeyed)

    @property
    def where(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{bracketed(self.hostname)}:{self.port}"

    @property
    def ssh(self) -> str:
        """The command that makes the same connection by hand."""
        return shlex.join(["ssh", *(["-F", self.config_file] if self.config_file else []), self.name])


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse(name: str, config_file: str | None, text: str, environ: Mapping[str, str]) -> SshConfig:
    """`text`, the output of `ssh -G`, as an SshConfig. Asks only whether known_hosts paths with blanks exist."""
    values = options(text)

    def one(key: str, default: str = "") -> str:
        return values[key][0] if values[key] else default

    def unless_none(key: str) -> str | None:
        value = one(key)
        return None if value.lower() in ("", "none") else value

    hostname, port, user = one("hostname", name), int(one("port", "22")), one("user")
    alias, jump = unless_none("hostkeyalias"), unless_none("proxyjump")
    tokens = Tokens(
        name=name,
        hostname=hostname,
        port=port,
        user=user,
        alias=alias,
        jump=jump,
        environ=environ,
        connection=one("controlpath"),
    )
    command, revoked = unless_none("proxycommand"), unless_none("revokedhostkeys")
    telling = unless_none("knownhostscommand")
    timeout = unless_none("connecttimeout")
    return SshConfig(
        name=name,
        config_file=config_file,
        hostname=hostname,
        port=port,
        user=user,
        addressfamily=one("addressfamily", "any"),
        bindaddress=unless_none("bindaddress"),
        identity_files=tuple(tokens.path(value) for value in values["identityfile"] if value != "none"),
        certificate_files=tuple(tokens.path(value) for value in values["certificatefile"] if value != "none"),
        identities_only=_yes(one("identitiesonly")),
        identity_agent=_agent_socket(
            unless_none("identityagent") if values["identityagent"] else "SSH_AUTH_SOCK", environ
        ),
        pubkey_authentication=_yes(one("pubkeyauthentication", "yes")),
        user_known_hosts=split_paths(one("userknownhostsfile")),
        global_known_hosts=split_paths(one("globalknownhostsfile")),
        known_hosts_command=KnownHostsCommand(telling, tokens) if telling else None,
        revoked_host_keys=tokens.path(revoked) if revoked else None,
        host_key_alias=alias,
        proxy_jump=tokens.expand(jump) if jump else None,
        proxy_command=tokens.expand(command) if command else None,
        connect_timeout_s=float(timeout) if timeout and timeout.isdigit() and int(timeout) else None,
        server_alive_interval_s=int(one("serveraliveinterval", "0")),
        server_alive_count=int(one("serveralivecountmax", "3")),
        algorithms={
            ours: tuple(one(theirs).split(",")) for ours, theirs in _ALGORITHMS.items() if one(theirs)
        },
        required_rsa_bits=int(one("requiredrsasize", "0")),
        not_obeyed=tuple(f"{key} {one(key)}" for key in NOT_OBEYED if one(key) not in ("", "no", "none")),
    )


def options(text: str) -> dict[str, list[str]]:
    """The output of `ssh -G`: option in lower case → its values; a missing option has none."""
    values: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values[key.lower()].append(value)
    return values


_ALGORITHMS = {
    "kex": "kexalgorithms",
    "ciphers": "ciphers",
    "macs": "macs",
    "keys": "hostkeyalgorithms",
    "authorities": "casignaturealgorithms",
    "pubkeys": "pubkeyacceptedalgorithms",
}


def _yes(value: str) -> bool:
    return value in ("yes", "true")


def _agent_socket(value: str | None, environ: Mapping[str, str]) -> str | None:
    """`IdentityAgent`: none, SSH_AUTH_SOCK, $NAME for an environment variable, or a path that ssh expanded."""
    if value == "SSH_AUTH_SOCK":
        return environ.get("SSH_AUTH_SOCK") or None
    if value and value.startswith("$"):
        return environ.get(value[1:].strip("{}")) or None
    return value


def split_paths(value: str) -> tuple[str, ...]:
    """Several paths that `ssh -G` printed on one line, without quotes even where a path has a blank in it.

    A run of words that names an existing file is one path; else each word is.
    """
    words, paths = value.split(" "), []
    while words:
        end = next((n for n in range(len(words), 1, -1) if Path(" ".join(words[:n])).exists()), 1)
        paths.append(" ".join(words[:end]))
        del words[:end]
    return tuple(path for path in paths if path and path != "none")
