"""From a host's name to an agent on it, and who is asking."""

from __future__ import annotations

import getpass
import os
import socket

from ddtool.transport.agent import Agent
from ddtool.transport.host import Host

SANDBOX = "sandbox:"


def open_host(name: str) -> Host:
    """`sandbox:NAME` is a sandbox host on this machine, `local` this machine itself, anything else a name for ssh."""
    if name == "local":
        from ddtool.transport.local import LocalHost

        state = os.environ.get("DDTOOL_LOCAL_STATE", "/var/lib/ddtool")
        return LocalHost(state=state, run=os.environ.get("DDTOOL_LOCAL_RUN", "/run/ddtool"))
    from ddtool.transport.ssh import connect

    target, ssh_config = ssh_name(name)
    return connect(target, ssh_config=ssh_config)


def ssh_name(name: str) -> tuple[str, str | None]:
    """The name for ssh that a host's name stands for, and the file for its -F."""
    if not name.startswith(SANDBOX):
        return name, None
    from ddtool.sandbox import find

    sandbox = find(name.removeprefix(SANDBOX))
    return sandbox.name, str(sandbox.ssh_config)


def open_agent(name: str) -> Agent:
    """Raises a HostError or PreflightError that says what is in the way."""
    host = open_host(name)
    try:
        return Agent(host)
    except BaseException:
        host.close()
        raise


def operator() -> str:
    """`user@machine`, for locks and the audit on the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
