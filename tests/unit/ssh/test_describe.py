"""What `doctor ssh` will show, from files alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.sshd import keygen, public, ssh_agent

from ddtool.transport.describe import describe
from ddtool.transport.sshresolve import resolve


def test_what_was_resolved_and_what_there_is_to_use(tmp_path: Path) -> None:
    key, held, locked = (
        keygen(tmp_path / "k"),
        keygen(tmp_path / "a"),
        keygen(tmp_path / "l", "ed25519", "secret"),
    )
    host_key = keygen(tmp_path / "host")
    (tmp_path / "known_hosts").write_text(
        f"# first\n[10.0.0.7]:2222 {public(host_key)}\nother {public(key)}\n"
    )
    with ssh_agent(tmp_path, held) as agent:
        (tmp_path / "config").write_text(
            f"Host gpu\n HostName 10.0.0.7\n Port 2222\n User ubuntu\n ProxyJump edge\n IdentityAgent {agent}\n"
            f" IdentityFile {key}\n IdentityFile {locked}\n IdentityFile {tmp_path}/missing\n"
            f" UserKnownHostsFile {tmp_path}/known_hosts {tmp_path}/absent\n GlobalKnownHostsFile none\n"
            f" KnownHostsCommand /bin/echo '[%h]:2222 {public(host_key)}'\n RemoteCommand uptime\n"
        )
        environ = dict(os.environ)
        shown = describe(resolve("gpu", str(tmp_path / "config"), environ=environ), environ)
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["target"], shown["via"]) == ("ubuntu@10.0.0.7:2222", "edge")
    assert [each["source"] for each in shown["keys"]] == ["the agent (a)", str(key)]
    assert (shown["locked"], shown["passed_over"]) == ([str(locked)], [])
    assert [each["exists"] for each in shown["known_hosts"]] == [True, False]
    places = [each["source"] for each in shown["known_keys"]]
    assert places == [f"{tmp_path}/known_hosts:2", "KnownHostsCommand:1"]
    assert shown["not_obeyed"] == ["remotecommand uptime"]
