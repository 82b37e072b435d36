"""Channels in trouble: floods, deadlines, commands that end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.sshd import Sshd, public
from support.sshhost import Config, run

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.start import explain_start_failure


def test_a_flood_on_stderr_stalls_nothing(config: Config) -> None:
    """5 MiB, more than the window that stdout and stderr share on the wire; before stdout, and before stdin is read."""
    host = config.connect()
    flood = "head -c 5242880 /dev/zero | tr '\\0' e >&2"
    output, stderr, status = run(host, f"{flood}; echo done; {flood}; exit 4")
    assert (output, len(stderr), status) == (b"done\n", 65536, 4)
    channel = host.open(f"{flood}; head -c 5242880 | wc -c")
    channel.send(bytes(5242880))
    assert channel.recv(100, 10).strip() == b"5242880"
    channel = host.open(f"{flood}; exit 5")
    assert channel.exit_status(10) == 5
    host.close()


def test_timeouts_of_a_channel(config: Config) -> None:
    host = config.connect()
    channel = host.open("cat")
    with pytest.raises(TimeoutError):
        channel.recv(10, 0.05)
    with pytest.raises(TimeoutError):
        channel.recv(10, 0)
    assert channel.exit_status(0.05) is None
    channel.send(b"still here")
    assert channel.recv(100, 10) == b"still here"
    host.close()


def test_a_command_that_ended_takes_no_more(config: Config) -> None:
    host = config.connect()
    channel = host.open("echo gone >&2; exit 1")
    assert channel.exit_status(10) == 1
    assert channel.recv(10, 10) == b""
    with pytest.raises(ConnectionLost, match="has ended") as caught:
        for _ in range(500):  # the channel's end may arrive a moment after the command's
            channel.send(b"x")
            time.sleep(0.01)
    assert "gone" in (caught.value.why or "")
    assert run(host, "echo on")[0] == b"on\n"  # the connection is none the worse
    host.close()


def test_a_host_that_hangs_on_open_is_left(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtool.transport.sshhost.OPEN_TIMEOUT_S", 0.3)
    host = config.connect()
    pids = subprocess.run(
        ["pgrep", "-P", str(config.server.sshd.pid)], capture_output=True, text=True, check=True
    )
    children = [int(pid) for pid in pids.stdout.split()]
    for pid in children:
        with contextlib.suppress(ProcessLookupError):  # of a connection that has just ended
            os.kill(pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(ConnectionLost):
            host.open("true")
        assert time.monotonic() - started < 10
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        host.close()


def test_a_shell_without_python3(config: Config) -> None:
    """The bootstrap's own words, through a real channel."""
    host = config.connect()
    _, stderr, status = run(host, "echo 'ddtool: no python3 on this host' >&2; exit 127")
    assert explain_start_failure(stderr, status, host.user, host.name).exit_code == 4
    host.close()


def test_a_login_that_may_open_no_session(config: Config, tmp_path: Path) -> None:
    options = "MaxSessions 0\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], options) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        host = config.connect(Port=sshd.port)
        with pytest.raises(HostError, match="refuses another session") as caught:
            host.open("true")
        assert type(caught.value) is HostError and "MaxSessions" in (caught.value.hint or "")
        host.close()
