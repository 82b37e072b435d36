"""What ssh needs to reach one sandbox and no other: keys, known_hosts, a configuration file."""

from __future__ import annotations

import subprocess

from ddtool.sandbox.records import Options, Sandbox

HOST_KEY = "ssh_host_ed25519_key"

_CONFIG = """\
Host {name} sandbox:{name}
  HostName {address}
  Port {port}
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
"""


def make_keys(options: Options) -> None:
    """The sandbox's host key and the one key that opens it, in its folder."""
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"ddtool-sandbox-{options.name}"]
    for key in ("id_ed25519", HOST_KEY):
        subprocess.run([*keygen, "-f", str(options.folder / key)], check=True, stdin=subprocess.DEVNULL)


def write_config(sandbox: Sandbox) -> None:
    """known_hosts and ssh_config, once the port is known."""
    kind, host_key, *_ = (sandbox.state / f"{HOST_KEY}.pub").read_text().split()
    sandbox.known_hosts.write_text(f"[{sandbox.address}]:{sandbox.port} {kind} {host_key}\n")
    fields = {
        "name": sandbox.name,
        "address": sandbox.address,
        "port": sandbox.port,
        "key": sandbox.key,
        "known_hosts": sandbox.known_hosts,
    }
    sandbox.ssh_config.write_text(_CONFIG.format(**fields))
    sandbox.ssh_config.chmod(0o600)
