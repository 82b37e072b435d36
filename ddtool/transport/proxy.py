"""ProxyJump and ProxyCommand: another program carries the bytes, as in OpenSSH."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ddtool.errors import ConnectionLost, ConnectTimeout, HostError
from ddtool.transport import jumpkeys
from ddtool.transport.dial import alive_interval_s
from ddtool.transport.passphrase import Ask
from ddtool.transport.proxyfailure import SHOWN_LINES, explain_proxy_failure, failed_hop, fdpass_refused
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.sshresolve import destination
from ddtool.transport.text import last_lines

Made = TypeVar("Made")
NEXT_HOP = "[%h]:%p"  # of the ssh whose ProxyCommand it stands in


def proxy_argv(
    config: SshConfig, environ: Mapping[str, str], agents: Mapping[str, str] | None = None
) -> list[str] | None:
    """The command that carries the connection, or None for a direct one. Raises HostError for ProxyUseFdpass.

    `agents`: jump host → socket of the agent that it is to use in place of its own.
    """
    if config.proxy_jump:
        target = f"[{config.hostname}]:{config.port}"
        return _through(config, config.proxy_jump.split(","), target, agents or {})
    if config.proxy_command:
        if "proxyusefdpass" in config.not_obeyed_names:
            raise fdpass_refused(config)
        return [environ.get("SHELL") or "/bin/sh", "-c", f"exec {config.proxy_command}"]
    return None


def _through(config: SshConfig, hops: Sequence[str], target: str, agents: Mapping[str, str]) -> list[str]:
    """ssh to `target` through jump hosts. Not with -J, whose ssh for the hops before the last has none of these."""
    *before, hop = hops
    options = {
        "BatchMode": "yes",  # there is no terminal to ask on
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "LogLevel": "INFO",  # QUIET would keep the reason of a failure back
        "ServerAliveInterval": alive_interval_s(config),
    }
    if hop in agents:
        options["IdentityAgent"] = agents[hop]
    if before:
        inner = _through(config, before, NEXT_HOP, agents)
        words = [word if word == NEXT_HOP else word.replace("%", "%%") for word in inner]
        options["ProxyCommand"] = shlex.join(words)
        options["ProxyUseFdpass"] = "no"  # whatever the hop's own ProxyCommand does
    return [
        "ssh",
        *(["-F", config.config_file] if config.config_file else []),
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *("-W", target),
        *destination(hop),
    ]


def carried(config: SshConfig, environ: Mapping[str, str], ask: Ask, use: Callable[[Proxy], Made]) -> Made:
    """What `use` makes of a running proxy, and once more each time that a person unlocks a key for a jump host.

    A ConnectionLost becomes the error that says why the proxy did not carry the connection.
    """
    while True:
        with jumpkeys.agents(config) as agents:
            argv = proxy_argv(config, environ, agents)
            assert argv
            proxy = Proxy(argv, config, environ)
            try:
                return use(proxy)
            except ConnectionLost as error:
                failure, hop = proxy.failure(error), proxy.refusing_hop()
                proxy.close()
                if not jumpkeys.unlocked(config, hop, failure, environ, ask):
                    raise failure from error
            except ConnectTimeout as error:
                error.message += f", through {config.proxy_jump or 'ProxyCommand'}"
                error.why = "\n".join(filter(None, [error.why, proxy.stderr_tail()]))
                proxy.close()
                raise
            except BaseException:
                proxy.close()
                raise


class Proxy:
    """A running proxy. `sock` is a real socket, so that timeouts work as on a direct connection."""

    def __init__(self, argv: list[str], config: SshConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        self.argv = argv
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the proxy
        self._heard = 0  # how much of it is no reason for a failure any more
        self.sock, theirs = socket.socketpair()
        try:
            # A session of its own: Ctrl-C reaches ddtool alone, which closes in order, and nothing can prompt.
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                env={**environ, "SSH_ASKPASS_REQUIRE": "never"},
                start_new_session=True,
            )
        except OSError as error:
            self.sock.close()
            self._stderr.close()
            raise HostError(f"{config.name}: cannot run the proxy {argv[0]}", why=error.strerror) from error
        finally:
            theirs.close()

    def established(self) -> None:
        """The connection stands: what was said on the way is no reason for what happens from now on."""
        self._heard = self._stderr.seek(0, os.SEEK_END)

    def stderr_tail(self) -> str:
        return last_lines(self._said(), SHOWN_LINES)

    def failure(self, lost: ConnectionLost) -> HostError:
        """Why the proxy did not carry the connection, which `lost` says has broken."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its last words come with its end
        return explain_proxy_failure(self._config, self._said(), self._process.poll(), lost)

    def refusing_hop(self) -> str | None:
        """The jump host that is in the way, once the connection has failed."""
        return failed_hop(self._config, self._said())

    def _said(self) -> str:
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(self._heard, end - 16384))
        return self._stderr.read().decode(errors="replace")

    def close(self) -> None:
        self.sock.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            try:
                self._process.wait(2.0)
                break
            except subprocess.TimeoutExpired:
                continue
        self._stderr.close()
