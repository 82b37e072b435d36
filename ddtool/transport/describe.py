"""What `doctor ssh` shows: how a name was resolved, and what is there to use. Connects to nothing but the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddtool.transport import hostkey, knownhosts
from ddtool.transport.keys import KeyRing, collect, open_agent
from ddtool.transport.sshconfig import SshConfig

AGENT_TIMEOUT_S = 5.0


def describe(config: SshConfig) -> dict[str, Any]:
    """JSON data: `target`, `via`, `agent`, `keys` in the order of offering, `passed_over`, `known_hosts`, `known_keys`,
    `not_obeyed`.
    """
    ring = KeyRing()
    agent = open_agent(config, AGENT_TIMEOUT_S, ring)
    try:
        collect(config, agent, ring)
        keys = [_key(identity.public, identity.source) for identity in ring.identities]
    finally:
        if agent:
            agent.close()
    entries = knownhosts.load(config.known_hosts)
    names = hostkey.names(config)
    known = [entry for entry in entries if any(entry.covers(name) for name in names)]
    return {
        "name": config.name,
        "config_file": config.config_file,
        "target": config.where,
        "via": config.proxy_jump or config.proxy_command,
        "connect_timeout_s": config.connect_timeout_s,
        "agent": config.identity_agent,
        "keys": keys,
        "passed_over": ring.passed_over,
        "known_hosts": [{"path": path, "exists": Path(path).is_file()} for path in config.known_hosts],
        "looked_up": list(names),
        "known_keys": [{**_key(entry.key, entry.place), "marker": entry.marker or None} for entry in known],
        "not_obeyed": list(config.not_obeyed),
    }


def _key(key: knownhosts.PublicKey, source: str) -> dict[str, str]:
    return {"type": key.type, "fingerprint": key.fingerprint, "source": source}
