"""What `doctor ssh` shows before it connects: how a name was resolved and why, and what there is to use.

Connects to nothing but the ssh agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtool.errors import HostError
from ddtool.transport import hostkey, knownhosts, sources
from ddtool.transport.dial import Deadline
from ddtool.transport.keys import Identity, collect
from ddtool.transport.sshconfig import NOT_OBEYED, SshConfig, options
from ddtool.transport.sshresolve import ask_ssh

TIMEOUT_S = 15.0

# What of `ssh -G` has a say here, in the order in which it matters.
OBEYED = (
    *("hostname", "port", "user", "addressfamily", "bindaddress", "connecttimeout"),
    *("proxyjump", "proxycommand", "serveraliveinterval", "serveralivecountmax"),
    *("hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "knownhostscommand", "revokedhostkeys"),
    *("identityagent", "identityfile", "certificatefile", "identitiesonly", "pubkeyauthentication"),
    *("hostkeyalgorithms", "casignaturealgorithms", "pubkeyacceptedalgorithms", "requiredrsasize"),
    *("kexalgorithms", "ciphers", "macs"),
)
DEFAULT = "ssh's default"
NAME = "the name given"


def describe(config: SshConfig, environ: Mapping[str, str], hops: Sequence[SshConfig] = ()) -> dict[str, Any]:
    """JSON data: `options` with the place that set each, `jumps`, `keys` in the order of offering, `locked` (files
    that need a passphrase, asked for last), `passed_over`, `known_hosts`, `known_keys`, `not_obeyed`.
    `hops`: the jump hosts as `resolve_hops` has them.
    """
    ring, agent = collect(config, TIMEOUT_S)
    if agent:
        agent.close()
    names = hostkey.names(config)
    known = knownhosts.covering(_known(config), names)
    read, shown = _options(config, environ)
    return {
        "name": config.name,
        "config_file": config.config_file,
        "target": config.where,
        "via": config.proxy_jump or config.proxy_command,
        "files": read.files,
        "blocks": [f"{path}:{line}" for path, line in read.blocks],
        "options": shown,
        "jumps": [
            {"name": hop.name, "target": hop.where, "via": hop.proxy_jump or hop.proxy_command}
            for hop in hops
        ],
        "agent": config.identity_agent,
        "keys": [_identity(identity) for identity in ring.identities],
        "locked": ring.encrypted,
        "passed_over": ring.passed_over,
        "known_hosts": [{"path": path, "exists": Path(path).is_file()} for path in config.known_hosts],
        "looked_up": list(names),
        "known_keys": [{**_key(entry.key, entry.place), "marker": entry.marker or None} for entry in known],
        "not_obeyed": list(config.not_obeyed),
    }


def _known(config: SshConfig) -> list[knownhosts.Entry]:
    """With what KnownHostsCommand says. Where it fails, so does the connection, and that tells why."""
    files = knownhosts.load(config.known_hosts)
    try:
        return [*files, *hostkey.told(config, Deadline(TIMEOUT_S))]
    except HostError:
        return files


def _options(config: SshConfig, environ: Mapping[str, str]) -> tuple[sources.Trail, list[dict[str, Any]]]:
    text, debug = ask_ssh(
        config.name, ["--", config.name], config.config_file, environ, TIMEOUT_S, verbose=True
    )
    values, read = options(text), sources.trail(debug)
    settings = sources.settings(read)
    shown = []
    for option in (*OBEYED, *NOT_OBEYED):
        if values[option] and not (option in NOT_OBEYED and values[option][0] in ("no", "none")):
            place = sources.source(option, values[option], settings)
            if _in_name(config.name, option) or (option == "hostname" and not place):
                place = NAME
            shown.append({"option": option, "values": values[option], "source": place or DEFAULT})
    return read, shown


def _in_name(name: str, option: str) -> bool:
    """Whether the name itself says it, which no file can overrule."""
    if option == "port":
        return name.startswith("ssh://") and name.rstrip("/").rpartition(":")[2].isdigit()
    return option == "user" and "@" in name


def _identity(identity: Identity) -> dict[str, Any]:
    certificate = str(identity.certificate) if identity.certificate else None
    return {
        **_key(identity.public, identity.source),
        "certificate": certificate,
        "doubt": identity.doubt,
    }


def _key(key: knownhosts.PublicKey, source: str) -> dict[str, str]:
    return {"type": key.type, "fingerprint": key.fingerprint, "source": source}
