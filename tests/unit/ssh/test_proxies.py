"""ProxyJump and ProxyCommand, and which of them is named when they fail."""

from __future__ import annotations

import threading
from pathlib import Path

from support.sshd import Sshd, free_port, keygen, public
from support.sshhost import Config, assert_reaches, jump_config, new_threads, run

from ddtool.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    HostKeyUnknown,
)


def test_proxy_jump(config: Config, tmp_path: Path) -> None:
    behind = Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)])
    try:
        config.know(
            f"[127.0.0.1]:{config.server.port} {public(config.server.ed25519)}",
            f"[127.0.0.1]:{behind.port} {public(config.server.ed25519)}",
        )
        before = threading.enumerate()
        host = config.connect(**jump_config(config, Port=behind.port))
        assert run(host, "echo $SSH_CONNECTION")[0].split()[-1] == str(behind.port).encode()
        proxy = host._proxy
        host.close()
        assert proxy is not None and proxy._process.poll() is not None
        assert not new_threads(before)
    finally:
        behind.stop()


def test_a_jump_that_does_not_let_us_through(config: Config, tmp_path: Path) -> None:
    wrong = keygen(tmp_path / "wrong")
    error = config.failure(AuthenticationFailed, **jump_config(config, jump_key=wrong))
    assert "the jump host jump is in the way: it does not let us log in" in error.message
    assert "Permission denied" in (error.why or "")
    assert (error.hint or "").startswith("ssh ") and "jump" in (error.hint or "")
    config.failure(HostKeyUnknown, **jump_config(config, jump_known_hosts=tmp_path / "none"))
    config.failure(ConnectionRefused, **jump_config(config, Port=free_port()))


def test_proxy_command(config: Config) -> None:
    assert_reaches(
        config.connect(HostKeyAlias="gpu-key", ProxyCommand=proxy_program(config), HostName="name.invalid")
    )


def proxy_program(config: Config) -> str:
    config.know(f"gpu-key {public(config.server.ed25519)}")
    program = config.folder / "proxy.py"
    program.write_text(
        "import os, socket, sys, threading\n"
        f"sock = socket.create_connection(('127.0.0.1', {config.server.port}))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): sock.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := sock.recv(65536): os.write(1, data)\n"
    )
    return f"python3 {program} %h %p"


def test_a_proxy_command_that_fails(config: Config) -> None:
    error = config.failure(ConnectionLost, ProxyCommand="sh -c 'echo \"tunnel is down\" >&2; exit 1'")
    assert "tunnel is down" in (error.why or "")
    assert "exit status 127" in (config.failure(ConnectionLost, ProxyCommand="sh -c 'exit 127'").why or "")


def test_a_proxy_command_that_hangs(config: Config) -> None:
    error = config.failure(
        ConnectTimeout, timeout=0.5, ProxyCommand="sh -c 'echo waiting >&2; exec sleep 60'"
    )
    assert "waiting" in (error.why or "")
