"""A connection made for its own sake, step by step: what `doctor ssh` runs. Leaves nothing on the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ddtool.errors import ConnectionLost, DdtoolError
from ddtool.transport.agent import Agent
from ddtool.transport.dial import Deadline
from ddtool.transport.passphrase import Ask, ask_at_terminal
from ddtool.transport.proxy import Proxy, carried
from ddtool.transport.ssh import CONNECT_TIMEOUT_S, log_in
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.text import printable

BANNER_LIMIT = 1 << 16


@dataclass(frozen=True)
class Step:
    """One step that was done, or (`error`) the one that was not."""

    name: str
    detail: str
    seconds: float
    error: DdtoolError | None = None

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        error = self.error and self.error.data()
        return {**asdict(replace(self, error=None)), "ok": not error, "error": error}


def check(
    config: SshConfig,
    tell: Callable[[Step], None],
    *,
    hops: Sequence[SshConfig] = (),
    environ: Mapping[str, str],
    ask: Ask = ask_at_terminal,
) -> DdtoolError | None:
    """Go through the jump hosts, log in, and start the agent. `tell` hears of each step; the error that ended it.

    `hops`: the jump hosts as `resolve_hops` has them.
    """
    pace = _Pace(config, tell)
    try:
        for leg in _legs(hops):
            pace.begin(f"jump {leg.proxy_jump}")
            pace.done(f"jump {leg.proxy_jump}", f"reaches {leg.where}: {_banner(leg, environ, ask)}")
        pace.begin("proxy" if config.proxy_jump or config.proxy_command else "name")
        host = log_in(config, environ=environ, ask=ask, report=pace.done)
        try:
            with Agent(host) as agent:
                version = ".".join(map(str, agent.python))
                became = "" if host.user == "root" else f", become through sudo -n from {host.user}"
                pace.done("agent", f"python3 {version}, uid {agent.uid}{became}")
        finally:
            host.close()
    except DdtoolError as error:
        pace.failed(error)
        return error
    return None


class _Pace:
    """Which step is under way, and since when."""

    _AFTER = {  # noqa: RUF012  never changed
        "name": "tcp",
        "tcp": "key exchange",
        "proxy": "key exchange",
        "key exchange": "host key",
        "host key": "login",
        "login": "agent",
    }

    def __init__(self, config: SshConfig, tell: Callable[[Step], None]) -> None:
        self._tell = tell
        self._step = ""
        self._since = time.monotonic()

    def begin(self, step: str) -> None:
        self._step = step

    def done(self, step: str, detail: str) -> None:
        self._tell(Step(step, detail, self._lap()))
        self._step = self._AFTER.get(step, "")

    def failed(self, error: DdtoolError) -> None:
        self._tell(Step(self._step, error.message, self._lap(), error))

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return round(seconds, 3)


def _legs(hops: Sequence[SshConfig]) -> Iterator[SshConfig]:
    """The way to each jump host but the first, through those before it. The last stretch is the connection itself."""
    for index, hop in enumerate(hops):
        if index:
            before = ",".join(hop.name for hop in hops[:index])
            yield replace(hop, proxy_jump=before, proxy_command=None)


def _banner(leg: SshConfig, environ: Mapping[str, str], ask: Ask) -> str:
    """What the jump host at the end of a leg says first. Raises a HostError that names the hop that failed."""

    def read(proxy: Proxy) -> str:
        deadline = Deadline(leg.connect_timeout_s or CONNECT_TIMEOUT_S)
        said = b""
        try:
            while b"\n" not in said and len(said) < BANNER_LIMIT:
                proxy.sock.settimeout(deadline.remaining())
                part = proxy.sock.recv(256)
                if not part:
                    raise ConnectionError
                said += part
        except TimeoutError:
            raise deadline.error(leg, "no SSH banner came") from None
        except ConnectionError:  # also: the proxy ended with words of ours unread
            raise ConnectionLost(f"{leg.where} ended the connection before its SSH banner") from None
        proxy.close()
        return printable(said.partition(b"\n")[0].decode(errors="replace"))

    return carried(leg, environ, ask, read)
