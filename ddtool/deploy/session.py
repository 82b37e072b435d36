"""From a host's name to an agent on it, and who is asking."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ddtool.errors import DdtoolError
from ddtool.transport.agent import Agent
from ddtool.transport.host import Host

if TYPE_CHECKING:
    from typing_extensions import Self

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


class _Starting(threading.Thread):
    """The agent starts on a host, which takes it a while, as the command loads what it works with."""

    def __init__(self, host: Host) -> None:
        super().__init__(daemon=True, name=f"the agent on {host.name}")
        self._host = host
        self._agent: Agent | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._agent = _start(self._host)
        except BaseException as error:  # noqa: BLE001  raised again where the agent is wanted
            self._error = error

    def agent(self) -> Agent:
        self.join()
        if self._error is not None:
            raise self._error
        assert self._agent is not None
        return self._agent


_begun: dict[str, _Starting | DdtoolError] = {}


def open_soon(name: str) -> None:
    """Begin what `open_agent(name)` will be asked for, and will say if it failed."""
    try:
        _begun[name] = _Starting(open_host(name))
    except DdtoolError as error:
        _begun[name] = error


def open_agent(name: str) -> Agent:
    """Raises a HostError or PreflightError that says what is in the way."""
    begun = _begun.pop(name, None)
    if isinstance(begun, DdtoolError):
        raise begun
    return begun.agent() if begun else _start(open_host(name))


def _start(host: Host) -> Agent:
    try:
        return Agent(host)
    except BaseException:
        host.close()
        raise


class Session:
    """A host and an agent on it, which leaving the context closes. `round_trips` counts over reconnections."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.agent = open_agent(host)
        self._past_round_trips = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._close()

    @property
    def round_trips(self) -> int:
        return self._past_round_trips + self.agent.round_trips

    def reconnect(self) -> Agent:
        """A new connection in place of one that broke."""
        self._past_round_trips += self.agent.round_trips
        self._close()
        self.agent = open_agent(self.host)
        return self.agent

    def _close(self) -> None:
        self.agent.close()
        self.agent.host.close()


def operator() -> str:
    """`user@machine`, for locks and the audit on the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
