"""Commands over a connection, and the forms of a name, against a real sshd on loopback."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from support.sshd import USER, free_port
from support.sshhost import Config, assert_reaches, run

from ddtool.transport.ssh import connect


def test_a_command_with_stdin_stdout_stderr_and_status(config: Config) -> None:
    before = threading.enumerate()
    host = config.connect()
    assert (host.name, host.user, host.become) == ("gpu", USER, True)
    assert run(host, "head -c 5; echo oops >&2; exit 3", b"hello") == (b"hello", "oops\n", 3)
    assert run(host, "kill -9 $$")[2] is None  # a signal is no status
    host.close()
    assert threading.enumerate() == before  # at once, not soon


def test_the_command_is_passed_as_it_is(config: Config) -> None:
    host = config.connect()
    command = """sh -c 'printf "%s|" "$0" "$@"' "a  b" 'c"d' '$HOME' \\; '*'"""
    assert run(host, command)[0] == b'a  b|c"d|$HOME|;|*|'
    host.close()


def test_a_megabyte_each_way(config: Config) -> None:
    host = config.connect()
    data = os.urandom(1 << 20)
    channel = host.open("head -c 1048576 | cat")
    channel.send(data)
    received = b""
    while part := channel.recv(1 << 20, 10):
        received += part
    assert received == data
    host.close()


def test_several_commands_at_once(config: Config) -> None:
    host = config.connect()
    channels = [host.open(f"read x; echo {n}$x") for n in range(4)]
    for channel in reversed(channels):
        channel.send(b"!\n")
    assert [channel.recv(100, 10) for channel in channels] == [f"{n}!\n".encode() for n in range(4)]
    host.close()


def test_small_packets_leave_at_once_and_silence_is_bounded(config: Config) -> None:
    host = config.connect(ServerAliveInterval=5, ServerAliveCountMax=2)
    assert host._transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert host._transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
    host.close()


@pytest.mark.parametrize("name", [f"{USER}@gpu", "uri"])
def test_forms_of_the_name(config: Config, name: str) -> None:
    if name == "uri":
        name = f"ssh://{USER}@gpu:{config.server.port}"
    assert_reaches(connect(name, ssh_config=config.write(User="nobody-here"), connect_timeout_s=10))


def test_include_and_match(config: Config, tmp_path: Path) -> None:
    real = config.write()
    (tmp_path / "outer").write_text(f'Match exec "test %n = gpu"\n  Include {real}\n')
    assert_reaches(connect("gpu", ssh_config=str(tmp_path / "outer"), connect_timeout_s=10))


def test_what_plays_no_part(config: Config) -> None:
    """Forwarding, commands here, environments, multiplexing, terminals: nothing of it, and the connection works."""
    port = free_port()
    touch = f"touch {config.folder}/ran"
    options = {
        "Compression": "yes",
        "ControlMaster": "auto",
        "ControlPath": config.folder / "control",
        "DynamicForward": port,
        "ForwardX11": "yes",
        "LocalCommand": touch,
        "PermitLocalCommand": "yes",
        "RekeyLimit": "1M 1h",
        "RemoteCommand": touch,
        "RequestTTY": "force",
        "SendEnv": "LANG",
        "SetEnv": "MINE=1",
        "UpdateHostKeys": "yes",
        "VisualHostKey": "yes",
    }
    known = config.known_hosts.read_bytes()
    host = config.connect(**options)
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port)):
        pass
    assert run(host, "echo ${MINE:-none}; tty")[0] == b"none\nnot a tty\n"
    host.close()
    assert config.known_hosts.read_bytes() == known
    assert sorted(path.name for path in config.folder.iterdir()) == ["config", "known_hosts"]
