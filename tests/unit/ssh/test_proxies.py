"""ProxyJump and ProxyCommand, and which of them is named when they fail."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.sshd import Sshd, free_port, keygen, public, silent_listener, ssh_agent
from support.sshhost import Config, Server, assert_reaches, behind, new_threads, run

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
from ddtool.transport.ssh import connect


def test_proxy_jump(config: Config, tmp_path: Path) -> None:
    inner = Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)])
    try:
        config.know(
            f"[127.0.0.1]:{config.server.port} {public(config.server.ed25519)}",
            f"[127.0.0.1]:{inner.port} {public(config.server.ed25519)}",
        )
        before = threading.enumerate()
        host = config.connect(Port=inner.port, **behind(config, "jump"))
        assert run(host, "echo $SSH_CONNECTION")[0].split()[-1] == str(inner.port).encode()
        proxy = host._proxy
        host.close()
        assert proxy is not None and proxy._process.poll() is not None
        assert not new_threads(before)
    finally:
        inner.stop()


def test_a_jump_that_does_not_let_us_through(config: Config, tmp_path: Path) -> None:
    wrong = keygen(tmp_path / "wrong")
    error = config.failure(AuthenticationFailed, **behind(config, "jump", jump={"IdentityFile": wrong}))
    assert "the jump host jump is in the way: it does not let us log in" in error.message
    assert "Permission denied" in (error.why or "")
    assert (error.hint or "").startswith("ssh ") and "jump" in (error.hint or "")
    unknown = {"UserKnownHostsFile": tmp_path / "none"}
    config.failure(HostKeyUnknown, **behind(config, "jump", jump=unknown))
    port = free_port()
    error = config.failure(ConnectionRefused, Port=port, **behind(config, "jump"))
    assert f"the jump host jump cannot reach 127.0.0.1:{port}: a connection is refused" in error.message


def test_a_chain_of_jumps(config: Config) -> None:
    before = threading.enumerate()
    host = config.connect(**behind(config, "a", "b"))
    assert run(host, "echo there")[0] == b"there\n"
    host.close()
    assert not new_threads(before)


@pytest.mark.parametrize("name", ["fish", "tcsh"])
def test_a_long_chain_in_the_user_s_shell(config: Config, name: str) -> None:
    """ssh gives the way to each hop to $SHELL, quoted once more for every hop."""
    shell = shutil.which(name)
    if not shell and not os.environ.get("CI"):
        pytest.skip(f"no {name} here")
    file = config.write(**behind(config, "a", "b", "c", "d"))
    environ = {**os.environ, "SHELL": str(shell)}
    assert_reaches(connect("gpu", ssh_config=file, connect_timeout_s=20, environ=environ))


def test_a_hop_s_own_way_there_plays_no_part(config: Config) -> None:
    """As with ssh -J: how a hop is reached from here is not how it is reached from the hop before it."""
    own = {"ProxyCommand": "nc -F %h %p", "ProxyUseFdpass": "yes"}
    assert_reaches(config.connect(**behind(config, "a", "b", b=own)))
    config.openssh(expect=True)


def test_a_jump_with_a_jump_of_its_own(config: Config) -> None:
    """They are one chain, each of whose hops is named."""
    options = behind(config, "a", "b", "c", "d", b={"ProxyJump": "a"}, c={"ProxyJump": "b"})
    options["ProxyJump"] = "c,d"
    assert_reaches(config.connect(**options))
    config.openssh(expect=True)
    options = behind(config, "a", "b", b={"ProxyJump": "a", "Port": free_port()})
    error = config.failure(ConnectionRefused, **{**options, "ProxyJump": "b"})
    assert "the jump host a (hop 1 of 2) cannot reach b: a connection is refused" in error.message


def test_jumps_in_a_circle(config: Config) -> None:
    options = behind(config, "a", "b", a={"ProxyJump": "b"}, b={"ProxyJump": "a"})
    error = config.failure(HostError, **{**options, "ProxyJump": "b"})
    assert "go round in a circle" in error.message and "b is on the way already" in (error.why or "")


FIRST, SECOND = "the jump host a (hop 1 of 2)", "the jump host b (hop 2 of 2)"


@pytest.mark.parametrize(
    ("changes", "cls", "message"),
    [
        (
            {"a": {"IdentityFile": "none"}},
            AuthenticationFailed,
            f"{FIRST} is in the way: it does not let us log in",
        ),
        (
            {"b": {"IdentityFile": "none"}},
            AuthenticationFailed,
            f"{SECOND} is in the way: it does not let us log in",
        ),
        (
            {"a": {"UserKnownHostsFile": "none"}},
            HostKeyUnknown,
            f"{FIRST} is in the way: its host key is not known",
        ),
        (
            {"b": {"UserKnownHostsFile": "none"}},
            HostKeyUnknown,
            f"{SECOND} is in the way: its host key is not known",
        ),
        (
            {"b": {"HostKeyAlias": "other"}},
            HostKeyChanged,
            f"{SECOND} is in the way: its host key has changed",
        ),
        (
            {"a": {"HostName": "name.invalid"}},
            NameNotResolved,
            f"{FIRST} is in the way: a name does not resolve",
        ),
        (
            {"b": {"HostName": "name.invalid"}},
            NameNotResolved,
            f"{FIRST} cannot reach b: a name does not resolve",
        ),
        ({"a": {"Port": "refusing"}}, ConnectionRefused, f"{FIRST} is in the way: a connection is refused"),
        ({"b": {"Port": "refusing"}}, ConnectionRefused, f"{FIRST} cannot reach b: a connection is refused"),
        (
            {"a": {"Port": "forwarding nothing"}},
            HostError,
            f"{FIRST} cannot reach b: it forwards no connections",
        ),
        ({"b": {"Port": "forwarding nothing"}}, HostError, f"{SECOND} cannot reach 127.0.0.1:"),
        ({"a": {"ProxyCommand": "exit 7"}}, ConnectionLost, f"{FIRST} is in the way"),
        ({"a": {"LogLevel": "QUIET", "Port": "refusing"}}, ConnectionRefused, f"{FIRST} is in the way"),
        ({"b": {"LogLevel": "QUIET", "Port": "refusing"}}, ConnectionRefused, f"{FIRST} cannot reach b"),
    ],
)
def test_the_hop_that_failed_is_named(
    config: Config, shut: int, changes: dict[str, dict[str, object]], cls: type[HostError], message: str
) -> None:
    ports = {"refusing": free_port(), "forwarding nothing": shut}
    for options in changes.values():
        if "Port" in options:
            options["Port"] = ports[str(options["Port"])]
    other = public(config.server.user)
    for port in (config.server.port, shut):
        known = f"[127.0.0.1]:{port} {public(config.server.ed25519)}"
        config.known_hosts.write_text(f"{config.known_hosts.read_text()}{known}\nother {other}\n")
    error = config.failure(cls, **behind(config, "a", "b", **changes))
    assert message in error.message
    assert (error.hint or "").startswith("ssh a" if FIRST in message else "ssh -J a b")


@pytest.fixture(scope="module")
def shut(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An sshd that lets the user in and forwards nothing."""
    folder = tmp_path_factory.mktemp("shut")
    with Sshd(folder, [server.ed25519], [public(server.user)], "AllowTcpForwarding no\n") as sshd:
        yield sshd.port


def test_a_jump_that_says_nothing(config: Config) -> None:
    with silent_listener() as port:
        error = config.failure(ConnectTimeout, timeout=0.7, **behind(config, "a", "b", a={"Port": port}))
    assert "through a,b" in error.message


def test_an_agent_is_never_forwarded(config: Config, tmp_path: Path) -> None:
    with ssh_agent(tmp_path, config.server.user) as agent:
        options = {"ForwardAgent": "yes", "IdentityAgent": agent, "IdentityFile": "none"}
        environ = {**os.environ, "SSH_AUTH_SOCK": agent}
        file = config.write(**{**behind(config, "a", "b", a=options, b=options), **options})
        host = connect("gpu", ssh_config=file, connect_timeout_s=10, environ=environ)
        assert run(host, "echo ${SSH_AUTH_SOCK:-none}")[0] == b"none\n"
        host.close()


@pytest.mark.parametrize("hop", ["a", "b"])
def test_a_jump_host_s_key_is_never_accepted(config: Config, tmp_path: Path, hop: str) -> None:
    """Whatever StrictHostKeyChecking says, and nothing is written."""
    empty = tmp_path / "empty"
    empty.touch()
    options = {"StrictHostKeyChecking": "accept-new", "UserKnownHostsFile": empty}
    error = config.failure(HostKeyUnknown, **behind(config, "a", "b", **{hop: options}))
    assert f"the jump host {hop}" in error.message
    assert not empty.read_bytes()


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


@pytest.mark.parametrize("noticed", [True, False])
def test_what_a_proxy_said_on_the_way_is_no_reason_later(
    config: Config, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    """noticed: whether paramiko's reading thread saw the end before a write met it."""
    program = proxy_program(config)
    command = f"sh -c 'echo Welcome to the bastion >&2; exec {program}'"
    host = config.connect(HostKeyAlias="gpu-key", ProxyCommand=command)
    assert host._proxy is not None
    os.killpg(host._proxy._process.pid, signal.SIGKILL)
    if noticed:
        host._transport.join(10)
    else:
        monkeypatch.setattr(host, "survives", lambda: True)
        monkeypatch.setattr(host._transport, "open_session", raises(EOFError()))
    with pytest.raises(ConnectionLost) as caught:
        host.open("true")
    host.close()
    assert "bastion" not in (caught.value.why or "")


def test_a_write_that_meets_the_end_of_the_link_says_that_it_is_lost(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = config.connect(HostKeyAlias="gpu-key", ProxyCommand=proxy_program(config))
    channel = host.open("cat")
    monkeypatch.setattr(host, "survives", lambda: True)
    monkeypatch.setattr(channel._channel, "send", raises(EOFError()))
    with pytest.raises(ConnectionLost, match="the connection was lost while sending"):
        channel.send(b"words")
    host.close()


def raises(error: Exception) -> Callable[..., None]:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sh -c 'echo \"tunnel is down\" >&2; exit 3'", "tunnel is down\nit ended with exit status 3"),
        ("sh -c 'exit 127'", "it wrote nothing\nit ended with exit status 127"),
        ("sh -c 'kill -9 $$'", "it was ended by signal 9"),
        ("no-such-program %h", "no-such-program"),
    ],
)
def test_a_proxy_command_that_fails(config: Config, command: str, words: str) -> None:
    error = config.failure(ConnectionLost, ProxyCommand=command)
    assert words in (error.why or "")
    assert "ProxyCommand" in error.message
    assert command.replace("%h", "127.0.0.1") in (error.hint or "")


def test_a_proxy_command_that_reaches_no_sshd(config: Config) -> None:
    """The proxy did its part; what the connection noticed is said."""
    error = config.failure(ConnectionLost, ProxyCommand="printf 'HTTP/1.1 400\\r\\n'; true")
    assert "before its SSH banner, through ProxyCommand" in error.message
    assert "HTTP/1.1 400" in (error.why or "")


def test_a_proxy_command_that_hands_over_a_socket(config: Config) -> None:
    error = config.failure(HostError, ProxyCommand="nc -F %h %p", ProxyUseFdpass="yes")
    assert "ProxyUseFdpass" in error.message and "drop -F" in (error.hint or "")


def test_a_proxy_command_that_hangs(config: Config) -> None:
    command = "sh -c 'echo waiting >&2; exec sleep 60'"
    for timeout in (0.5, 20):  # on a busy machine a shell may need more than the first
        error = config.failure(ConnectTimeout, timeout=timeout, ProxyCommand=command)
        if "waiting" in (error.why or ""):
            return
    pytest.fail(f"what the command said is not in {error.why!r}")
