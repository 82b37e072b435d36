"""ProxyJump and ProxyCommand: another program carries the bytes, as in OpenSSH."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping

from ddtool.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    NameNotResolved,
)
from ddtool.transport.dial import alive_interval_s
from ddtool.transport.sshconfig import SshConfig
from ddtool.transport.text import last_lines

# What OpenSSH says when it cannot get through. A changed key's text contains the unknown key's, so it comes first.
_CAUSES: tuple[tuple[str, type[HostError], str], ...] = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Offending .* key in",
        HostKeyChanged,
        "its host key has changed",
    ),
    (
        r"Host key verification failed|No .* host key is known for",
        HostKeyUnknown,
        "its host key is not known",
    ),
    (r"Could not resolve hostname|Name or service not known", NameNotResolved, "a name does not resolve"),
    (
        r"Permission denied \(|Too many authentication failures",
        AuthenticationFailed,
        "it does not let us log in",
    ),
    (r"[Cc]onnection refused", ConnectionRefused, "a connection is refused"),
    (r"[Tt]imed out|[Tt]imeout", ConnectTimeout, "a connection times out"),
)


_HOP = re.compile(
    r"(?:ssh://)?(?:(?P<user>.+)@)?(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:@/]+))(?::(?P<port>\d+))?/?"
)


def proxy_argv(config: SshConfig, environ: Mapping[str, str]) -> list[str] | None:
    """The command that carries the connection, or None for a direct one."""
    if config.proxy_jump:
        *before, last = config.proxy_jump.split(",")
        return [
            "ssh",
            *(["-F", config.config_file] if config.config_file else []),
            *("-o", "BatchMode=yes"),  # there is no terminal to ask on
            *("-o", f"ServerAliveInterval={alive_interval_s(config)}"),
            *("-W", f"[{config.hostname}]:{config.port}"),
            *(["-J", ",".join(before)] if before else []),
            *_destination(last),
        ]
    if config.proxy_command:
        return [environ.get("SHELL") or "/bin/sh", "-c", f"exec {config.proxy_command}"]
    return None


def _destination(hop: str) -> list[str]:
    """`[ssh://][user@]host[:port]` as arguments: ssh takes a port only in a URI, and no IPv6 address there (9.2)."""
    match = _HOP.fullmatch(hop)
    if not match:
        return ["--", hop]
    user, host, port = match["user"], match["v6"] or match["host"], match["port"]
    return [*(["-l", user] if user else []), *(["-p", port] if port else []), "--", host]


class Proxy:
    """A running proxy. `sock` is a real socket, so that timeouts work as on a direct connection."""

    def __init__(self, argv: list[str], config: SshConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        self._argv = argv
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the proxy
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

    def stderr_tail(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 16384))
        return last_lines(self._stderr.read().decode(errors="replace"), 6)

    def failure(self) -> HostError:
        """Why the proxy did not carry the connection. Call it when the connection has broken."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its last words come with its end
        said = self.stderr_tail()
        through = self._config.proxy_jump or "ProxyCommand"
        hint = f"{self._config.ssh} -v"
        if self._config.proxy_jump:
            hint = f"ssh {self._config.proxy_jump.rpartition(',')[2]}   # must work without a question"
        for pattern, cls, cause in _CAUSES:
            if re.search(pattern, said):
                return cls(
                    f"{self._config.name}: no connection through {through}: {cause}", why=said, hint=hint
                )
        status = self._process.poll()
        why = said or (
            f"it ended with exit status {status}" if status is not None else "it closed the connection"
        )
        return ConnectionLost(f"{self._config.name}: no connection through {through}", why=why, hint=hint)

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
