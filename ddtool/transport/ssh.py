"""The way to a host over ssh: exactly as `ssh NAME` goes, but without a question to anybody."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ddtool.transport.dial import Deadline, Report, alive_interval_s, dial
from ddtool.transport.passphrase import Ask, ask_at_terminal
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.sshresolve import resolve

if TYPE_CHECKING:
    import paramiko

    from ddtool.transport.proxy import Proxy
    from ddtool.transport.sshhost import SshHost

CONNECT_TIMEOUT_S = 15.0


def connect(
    name: str,
    *,
    ssh_config: str | None = None,
    connect_timeout_s: float | None = None,
    environ: Mapping[str, str] = os.environ,
    ask: Ask = ask_at_terminal,
) -> SshHost:
    """Log in at `name`: a Host of the ssh configuration, user@host, or ssh://user@host:port.

    `ssh_config` is a file for ssh's -F. `connect_timeout_s` bounds name resolution, TCP, banner, key exchange and
    login together; by default it is the configuration's ConnectTimeout, or 15 s. `ask` gets a passphrase from a
    person, whose time does not count. Raises a HostError that says what failed, why, and what to type next.
    """
    config = resolve(name, ssh_config, environ=environ, timeout_s=connect_timeout_s or CONNECT_TIMEOUT_S)
    return log_in(config, connect_timeout_s=connect_timeout_s, environ=environ, ask=ask)


def log_in(
    config: SshConfig,
    *,
    connect_timeout_s: float | None = None,
    environ: Mapping[str, str] = os.environ,
    ask: Ask = ask_at_terminal,
    report: Report = lambda step, detail: None,
) -> SshHost:
    """connect() for a name that has been resolved; `report` hears of each step as it is done."""

    def session(open_socket: Callable[[Deadline], socket.socket], report: Report) -> paramiko.Transport:
        deadline = Deadline(connect_timeout_s or config.connect_timeout_s or CONNECT_TIMEOUT_S)
        sock = open_socket(deadline)
        # Not before: loading paramiko takes as long as an sshd needs to say its first words.
        from ddtool.transport.auth import authenticate
        from ddtool.transport.handshake import end, handshake

        transport = handshake(sock, config, deadline, report)
        try:
            identity = authenticate(transport, config, deadline, ask)
        except BaseException:
            end(transport)
            raise
        report("login", f"{config.user}, with {identity or 'no key'}")
        transport.set_keepalive(alive_interval_s(config))
        return transport

    def through(proxy: Proxy) -> SshHost:
        def tell(step: str, detail: str) -> None:
            if step == "key exchange":  # no earlier: until then it may not have reached the host
                report("proxy", shlex.join(proxy.argv))
            report(step, detail)

        transport = session(lambda _: proxy.sock, tell)
        proxy.established()
        return logged_in(transport, proxy)

    def logged_in(transport: paramiko.Transport, proxy: Proxy | None = None) -> SshHost:
        from ddtool.transport.sshhost import SshHost

        return SshHost(config, transport, proxy)

    if config.proxy_jump or config.proxy_command:
        from ddtool.transport.proxy import carried

        return carried(config, environ, ask, through)
    return logged_in(session(lambda deadline: dial(config, deadline, report), report))
