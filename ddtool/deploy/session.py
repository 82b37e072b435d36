"""From a host's name to an agent on it, and who is asking."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from ddtool.transport.agent import Agent
from ddtool.transport.host import Host
from ddtool.transport.passphrase import Ask, ask_at_terminal

if TYPE_CHECKING:
    from typing_extensions import Self

SANDBOX = "sandbox:"
LOGIN_S = 0.5


def open_host(name: str, ask: Ask = ask_at_terminal) -> Host:
    """`sandbox:NAME` is a sandbox host on this machine, `local` this machine itself, anything else a name for ssh.

    `ask` gets a passphrase from a person.
    """
    if name == "local":
        from ddtool.transport.local import LocalHost

        state = os.environ.get("DDTOOL_LOCAL_STATE", "/var/lib/ddtool")
        return LocalHost(state=state, run=os.environ.get("DDTOOL_LOCAL_RUN", "/run/ddtool"))
    from ddtool.transport.ssh import connect

    target, ssh_config = ssh_name(name)
    return connect(target, ssh_config=ssh_config, ask=ask)


def ssh_name(name: str) -> tuple[str, str | None]:
    """The name for ssh that a host's name stands for, and the file for its -F."""
    if not name.startswith(SANDBOX):
        return name, None
    from ddtool.sandbox import find

    sandbox = find(name.removeprefix(SANDBOX))
    return sandbox.name, str(sandbox.ssh_config)


class _Question(Exception):
    """A key's passphrase would have to be asked for."""


class _Opening(threading.Thread):
    """Logs in at a host and starts the agent there, while the command loads what it works with. It asks nobody."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True, name=f"the way to {name}")
        self.logged_in = threading.Event()  # or not: then there is an error
        self._to = name
        self._agent: Agent | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            host = open_host(self._to, ask=_ask_nobody)
            self.logged_in.set()
            self._agent = _start(host)
        except BaseException as error:  # noqa: BLE001  raised again where the agent is wanted
            self._error = error
            self.logged_in.set()

    def agent(self) -> Agent:
        self.join()
        if self._error is not None:
            raise self._error
        assert self._agent is not None
        return self._agent


def _ask_nobody(path: str) -> str | None:
    """A person is asked in the foreground only, where Ctrl-C gives the terminal its echo back."""
    if sys.stdin and sys.stdin.isatty():
        raise _Question(path)
    return None


_begun: dict[str, _Opening] = {}


def open_soon(name: str) -> None:
    """Begin what `open_agent(name)` will be asked for, and will say if it failed.

    Most hosts let us log in while this waits: what the command loads next would only slow that down. One that is
    slow, or not there, is not waited for: what is wrong on this side is told first.
    """
    opening = _begun[name] = _Opening(name)
    opening.logged_in.wait(LOGIN_S)


def open_agent(name: str) -> Agent:
    """Raises a HostError or PreflightError that says what is in the way."""
    begun = _begun.pop(name, None)
    if begun is not None:
        with suppress(_Question):
            return begun.agent()
    return _start(open_host(name))


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
