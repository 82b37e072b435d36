"""ProxyJump and ProxyCommand: another program carries the bytes, as in OpenSSH."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.dial import alive_interval_s
from ddtool.transport.proxyfailure import SHOWN_LINES, explain_proxy_failure, fdpass_refused
from ddtool.transport.sshconfig import SshConfig, destination
from ddtool.transport.text import last_lines


def proxy_argv(config: SshConfig, environ: Mapping[str, str]) -> list[str] | None:
    """The command that carries the connection, or None for a direct one. Raises HostError for ProxyUseFdpass."""
    if config.proxy_jump:
        *before, last = config.proxy_jump.split(",")
        return [
            "ssh",
            *(["-F", config.config_file] if config.config_file else []),
            *("-o", "BatchMode=yes"),  # there is no terminal to ask on
            *("-o", "LogLevel=INFO"),  # QUIET would keep the reason of a failure back
            *("-o", f"ServerAliveInterval={alive_interval_s(config)}"),
            *("-W", f"[{config.hostname}]:{config.port}"),
            *(["-J", ",".join(before)] if before else []),
            *destination(last),
        ]
    if config.proxy_command:
        if "proxyusefdpass" in config.not_obeyed_names:
            raise fdpass_refused(config)
        return [environ.get("SHELL") or "/bin/sh", "-c", f"exec {config.proxy_command}"]
    return None


class Proxy:
    """A running proxy. `sock` is a real socket, so that timeouts work as on a direct connection."""

    def __init__(self, argv: list[str], config: SshConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        self._argv = argv
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
                env=dict(environ),
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
