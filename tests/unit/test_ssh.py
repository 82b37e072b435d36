"""connect() and its channels against a real sshd on loopback: what works, and every error with its next command."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sshd import SSHD, USER, Relay, Sshd, free_port, keygen, public, silent_listener, ssh_agent

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
from ddtool.transport.knownhosts import public_key
from ddtool.transport.ssh import SshHost, connect
from ddtool.transport.start import explain_start_failure

pytestmark = pytest.mark.skipif(not Path(SSHD).exists(), reason="no openssh-server here")


@dataclass
class Server:
    """An sshd with an ed25519 and an RSA host key, which lets `user` and `rsa` in."""

    sshd: Sshd
    ed25519: Path
    rsa: Path
    user: Path
    user_rsa: Path

    @property
    def port(self) -> int:
        return self.sshd.port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sshd")
    ed25519, rsa = keygen(folder / "host_ed25519"), keygen(folder / "host_rsa", "rsa")
    user, user_rsa = keygen(folder / "user"), keygen(folder / "user_rsa", "rsa", "", "-m", "PKCS8")
    sshd = Sshd(
        folder / "run", [rsa, ed25519], [public(user), public(user_rsa)], "MaxAuthTries 3\nMaxStartups 100\n"
    )
    yield Server(sshd, ed25519, rsa, user, user_rsa)
    sshd.stop()


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Config:
    return Config(server, tmp_path)


class Config:
    """An ssh configuration with the Host `gpu`; keyword arguments are its options."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.known_hosts = folder / "known_hosts"
        self.file = folder / "config"
        self.know(f"[127.0.0.1]:{server.port} {public(server.ed25519)}")

    def know(self, *lines: str) -> None:
        self.known_hosts.write_text("".join(f"{line}\n" for line in lines))

    def write(self, before: str = "", after: str = "", **options: object) -> str:
        merged = {
            "HostName": "127.0.0.1",
            "Port": self.server.port,
            "User": USER,
            "IdentityFile": self.server.user,
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "none",
            **options,
        }
        lines = [f"  {key} {value}\n" for key, value in merged.items() if value is not None]
        self.file.write_text(before + "Host gpu\n" + "".join(lines) + after)
        return str(self.file)

    def connect(self, timeout: float = 10, **options: object) -> SshHost:
        return connect("gpu", ssh_config=self.write(**options), connect_timeout_s=timeout)

    def failure(self, cls: type[HostError], timeout: float = 10, **options: object) -> HostError:
        """The error of a connection that must fail: exactly of this class, exit code 3, with a next command."""
        before = threading.enumerate()
        with pytest.raises(HostError) as caught:
            self.connect(timeout, **options)
        assert not new_threads(before)
        assert type(caught.value) is cls, f"{caught.value} {caught.value.why}"
        assert caught.value.exit_code == 3
        assert caught.value.why and caught.value.hint
        return caught.value


def new_threads(before: list[threading.Thread]) -> list[threading.Thread]:
    """Threads that came since and do not end: a cancelled timer takes a moment."""
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(0.5)
    return [thread for thread in new if thread.is_alive()]


def run(host: SshHost, command: str, stdin: bytes = b"") -> tuple[bytes, str, int | None]:
    channel = host.open(command)
    if stdin:
        channel.send(stdin)
    output = b""
    while part := channel.recv(65536, 10):
        output += part
    status = channel.exit_status(10)
    stderr = channel.stderr_tail()
    channel.close()
    return output, stderr, status


def assert_reaches(host: SshHost) -> None:
    """A connection is proof enough; a command costs the login shell's start."""
    assert host.alive
    host.close()


# ---- what works


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


# ---- host keys


@pytest.mark.parametrize("hashed", [False, True])
def test_known_among_other_lines(config: Config, hashed: bool) -> None:
    where = f"[127.0.0.1]:{config.server.port}"
    config.know(
        f"@cert-authority *.example.com {public(config.server.user)}",  # paramiko's own reader dies on it
        f"other {public(config.server.rsa)}",
        f"{where} {public(config.server.ed25519)}",
    )
    if hashed:
        subprocess.run(["ssh-keygen", "-H", "-f", str(config.known_hosts)], check=True, capture_output=True)
        assert where not in config.known_hosts.read_text()
    config.known_hosts.write_text("a line that means nothing\n" + config.known_hosts.read_text())
    assert_reaches(config.connect())


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_the_known_type_of_key_is_asked_for(config: Config, kind: str) -> None:
    config.know(f"[127.0.0.1]:{config.server.port} {public(getattr(config.server, kind))}")
    assert_reaches(config.connect())


def test_known_for_the_bare_name(config: Config) -> None:
    config.know(f"127.0.0.1 {public(config.server.ed25519)}")
    assert_reaches(config.connect())


def test_known_in_the_second_and_in_the_global_file(config: Config, tmp_path: Path) -> None:
    config.known_hosts.rename(tmp_path / "second")
    assert_reaches(config.connect(UserKnownHostsFile=f"{tmp_path}/none {tmp_path}/second"))
    assert_reaches(config.connect(UserKnownHostsFile="none", GlobalKnownHostsFile=tmp_path / "second"))


def test_host_key_alias(config: Config) -> None:
    config.know(f"the-gpu {public(config.server.ed25519)}")
    assert_reaches(config.connect(HostKeyAlias="the-gpu"))


@pytest.mark.parametrize("checking", ["ask", "accept-new", "no"])
def test_an_unknown_key_is_never_accepted(config: Config, checking: str) -> None:
    config.know()
    error = config.failure(HostKeyUnknown, StrictHostKeyChecking=checking)
    assert fingerprint(config.server.ed25519) in (error.why or "") or fingerprint(config.server.rsa) in (
        error.why or ""
    )
    assert str(config.known_hosts) in (error.why or "")
    assert (error.hint or "").startswith(f"ssh -F {config.file} gpu")
    assert config.known_hosts.read_text() == ""


def test_a_changed_key(config: Config, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    config.know("# a comment", f"[127.0.0.1]:{config.server.port} {public(other)}")
    error = config.failure(HostKeyChanged)
    why = error.why or ""
    assert fingerprint(other) in why and fingerprint(config.server.ed25519) in why
    assert f"{config.known_hosts}:2" in why
    assert "ssh-keygen -R" in (error.hint or "")


def test_only_another_type_is_known(config: Config, tmp_path: Path) -> None:
    config.know(f"[127.0.0.1]:{config.server.port} {public(keygen(tmp_path / 'e', 'ecdsa'))}")
    error = config.failure(HostKeyUnknown)
    assert f"{config.known_hosts}:1" in (error.why or "")


def test_a_revoked_key(config: Config, tmp_path: Path) -> None:
    where = f"[127.0.0.1]:{config.server.port}"
    config.know(f"{where} {public(config.server.ed25519)}", f"@revoked * {public(config.server.ed25519)}")
    assert "revoked" in config.failure(HostKeyChanged).message
    config.know(f"{where} {public(config.server.ed25519)}")
    (tmp_path / "revoked").write_text(public(config.server.ed25519) + "\n")
    assert "revoked" in config.failure(HostKeyChanged, RevokedHostKeys=tmp_path / "revoked").message
    assert "RevokedHostKeys" in config.failure(HostError, RevokedHostKeys=tmp_path / "missing").message


def test_a_host_known_by_an_authority_only(config: Config) -> None:
    config.know(f"@cert-authority * {public(config.server.user)}")
    error = config.failure(HostKeyUnknown)
    assert "certificates" in (error.why or "") and "ssh-keyscan" in (error.hint or "")


# ---- login


def test_keys_from_an_agent(config: Config, tmp_path: Path) -> None:
    with ssh_agent(tmp_path, config.server.user_rsa) as agent:
        assert_reaches(config.connect(IdentityAgent=agent, IdentityFile="none"))
        # A public key names the agent's key, also where IdentitiesOnly keeps the others back.
        options = {"IdentityAgent": agent, "IdentitiesOnly": "yes"}
        assert_reaches(config.connect(IdentityFile=f"{config.server.user_rsa}.pub", **options))
        error = config.failure(AuthenticationFailed, IdentityFile=tmp_path / "missing", **options)
        assert "no key" in (error.why or "")


def test_the_agent_of_the_environment(config: Config, tmp_path: Path) -> None:
    with ssh_agent(tmp_path, config.server.user) as agent:
        file = config.write(IdentityAgent=None, IdentityFile="none")
        environ = {**os.environ, "SSH_AUTH_SOCK": agent}
        assert_reaches(connect("gpu", ssh_config=file, connect_timeout_s=10, environ=environ))


def test_an_agent_that_is_gone(config: Config, tmp_path: Path) -> None:
    assert_reaches(config.connect(IdentityAgent=tmp_path / "gone"))
    error = config.failure(AuthenticationFailed, IdentityAgent=tmp_path / "gone", IdentityFile="none")
    assert f"the agent at {tmp_path}/gone: No such file" in (error.why or "")


def test_keys_of_every_form(config: Config) -> None:
    assert_reaches(
        config.connect(IdentityFile=config.server.user_rsa)
    )  # PKCS#8, which paramiko does not read


def test_a_certificate(tmp_path: Path, config: Config) -> None:
    authority = keygen(tmp_path / "authority")
    key = keygen(tmp_path / "certified")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(authority), "-I", "x", "-n", USER, f"{key}.pub"], check=True
    )
    config.failure(AuthenticationFailed, IdentityFile=key)
    sshd = Sshd(tmp_path / "run", [config.server.ed25519], [f"cert-authority {public(authority)}"])
    try:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        assert_reaches(config.connect(IdentityFile=key, Port=sshd.port))
        moved = Path(f"{key}-cert.pub").rename(tmp_path / "elsewhere.pub")
        assert_reaches(config.connect(IdentityFile=key, CertificateFile=moved, Port=sshd.port))
    finally:
        sshd.stop()


def test_no_key_is_right(config: Config, tmp_path: Path) -> None:
    wrong, missing = keygen(tmp_path / "wrong"), tmp_path / "missing"
    error = config.failure(AuthenticationFailed, IdentityFile=f"{wrong}\n  IdentityFile {missing}")
    why = error.why or ""
    assert f"{USER}@127.0.0.1:{config.server.port}" in error.message
    assert f"tried: ssh-ed25519 {fingerprint(wrong)} from {wrong}" in why
    assert str(missing) not in why
    assert "it accepts publickey" in why


def test_an_encrypted_key_is_named_and_never_asked_for(config: Config, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", "ed25519", "secret")
    error = config.failure(AuthenticationFailed, IdentityFile=locked)
    assert f"passed over: {locked}: needs a passphrase" in (error.why or "")
    assert f"ssh-add {locked}" in (error.hint or "")


def test_files_that_are_no_usable_key(config: Config, tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("hello")
    (tmp_path / "junk").chmod(0o600)
    shared = keygen(tmp_path / "shared")
    shared.chmod(0o644)
    error = config.failure(AuthenticationFailed, IdentityFile=f"{tmp_path}/junk\n  IdentityFile {shared}")
    assert f"{tmp_path}/junk: not a private key" in (error.why or "")
    assert f"{shared}: others may read it" in (error.why or "")


def test_too_many_keys(config: Config, tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"key{n}") for n in range(4)]
    with ssh_agent(tmp_path, *keys, config.server.user) as agent:
        error = config.failure(AuthenticationFailed, IdentityAgent=agent, IdentityFile="none")
        assert "IdentitiesOnly" in (error.hint or "")
        assert (error.why or "").count("tried:") >= 2


# ---- links that do not come about


def test_a_name_that_does_not_resolve(config: Config) -> None:
    error = config.failure(NameNotResolved, HostName="name.invalid")
    assert "name.invalid" in error.message


def test_a_port_that_refuses(config: Config) -> None:
    port = free_port()
    assert f"127.0.0.1:{port}" in config.failure(ConnectionRefused, Port=port).message


def test_a_name_server_that_does_not_answer(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answered.wait(30) and [])
    with pytest.raises(ConnectTimeout) as caught:
        config.connect(0.3)
    answered.set()
    assert "DNS" in (caught.value.why or "")


@pytest.fixture
def dropping() -> Iterator[int]:
    """A port as good as behind a firewall: a listener whose queue is full answers no SYN."""
    if sys.platform != "linux":
        pytest.skip("other systems refuse instead of dropping")
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])
        for sock in waiting:
            sock.close()


def test_a_host_that_drops_packets(config: Config, dropping: int) -> None:
    error = config.failure(ConnectTimeout, timeout=0.4, Port=dropping)
    assert "no answer to a TCP connection" in (error.why or "")


def test_an_address_that_drops_leaves_time_for_the_next(
    config: Config, dropping: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tcp = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    answers = [(*tcp, ("127.0.0.1", dropping)), (*tcp, ("127.0.0.1", config.server.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: answers)
    assert_reaches(config.connect(2))


def test_a_listener_that_never_says_a_word(config: Config) -> None:
    with silent_listener() as port:
        error = config.failure(ConnectTimeout, timeout=0.5, Port=port)
    assert "no SSH banner" in (error.why or "")
    assert "0.5 s" in error.message


@pytest.mark.parametrize(
    ("words", "why"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400"), (b"", "closed the connection")]
)
def test_a_listener_that_is_no_sshd(config: Config, words: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            near, _ = listener.accept()
            near.sendall(words)
            near.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionLost) as caught:
            config.connect(Port=listener.getsockname()[1])
        thread.join()
    assert "before its SSH banner" in caught.value.message
    assert why in (caught.value.why or "")


def test_a_key_exchange_that_never_ends(config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def answer() -> None:
            near, _ = listener.accept()
            near.sendall(b"SSH-2.0-stuck\r\n")
            accepted.append(near)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectTimeout) as caught:
            config.connect(0.5, Port=listener.getsockname()[1])
        thread.join()
        accepted[0].close()
    assert "SSH-2.0-stuck, but the key exchange" in (caught.value.why or "")


def test_no_algorithm_in_common(config: Config) -> None:
    assert "leaves no ciphers" in config.failure(HostError, Ciphers="chacha20-poly1305@openssh.com").message


def test_paramiko_prints_nothing(config: Config, capfd: pytest.CaptureFixture[str]) -> None:
    """Outside pytest, which handles all records: a logger without a handler prints to stderr."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        config.know()
        config.failure(HostKeyUnknown)
        with silent_listener() as port:
            config.failure(ConnectTimeout, timeout=0.3, Port=port)
    finally:
        root.handlers = handlers
    assert capfd.readouterr() == ("", "")


# ---- proxies


def jump_config(config: Config, **options: object) -> dict[str, object]:
    """`gpu` behind the Host `jump`, which is another name of the same sshd."""
    jump = (
        f"Host jump\n  HostName 127.0.0.1\n  Port {config.server.port}\n  User {USER}\n  IdentityAgent none\n"
        f"  IdentityFile {options.pop('jump_key', config.server.user)}\n  GlobalKnownHostsFile none\n"
        f"  UserKnownHostsFile {options.pop('jump_known_hosts', config.known_hosts)}\n"
    )
    return {"ProxyJump": "jump", "after": jump, **options}


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
    assert "through jump" in error.message and "Permission denied" in (error.why or "")
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


# ---- channels in trouble


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


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    relay = Relay(server.port)
    yield relay
    relay.close()


def through(relay: Relay, config: Config) -> SshHost:
    return config.connect(Port=relay.port, HostKeyAlias=f"[127.0.0.1]:{config.server.port}")


def test_a_link_cut_while_reading(config: Config, relay: Relay) -> None:
    before = threading.enumerate()
    host = through(relay, config)
    channel = host.open("echo first; exec sleep 60")
    assert channel.recv(100, 10) == b"first\n"
    relay.cut()
    with pytest.raises(ConnectionLost) as caught:
        channel.recv(100, 10)
    assert caught.value.exit_code == 3 and caught.value.hint
    assert channel.exit_status(1) is None
    with pytest.raises(ConnectionLost):
        channel.send(b"x")
    with pytest.raises(ConnectionLost):
        host.open("true")
    host.close()
    assert not new_threads(before)


def test_a_link_cut_in_the_middle_of_output(config: Config, relay: Relay) -> None:
    """What arrived before the cut is delivered, then the loss: never a clean end."""
    host = through(relay, config)
    channel = host.open("yes 0123456789")
    assert channel.recv(11, 10)
    relay.cut()
    with pytest.raises(ConnectionLost):
        while channel.recv(1 << 20, 10):
            pass
    host.close()


def test_a_link_cut_after_the_end_is_a_clean_end(config: Config, relay: Relay) -> None:
    host = through(relay, config)
    channel = host.open("echo all")
    assert channel.exit_status(10) == 0
    relay.cut()
    host._transport.join(5)
    assert channel.recv(100, 10) == b"all\n"
    assert channel.recv(100, 10) == b""
    host.close()


@pytest.mark.parametrize("limit", [0, 10, 45, 800, 1600, 2200, 2900, 3400, 3900, 4400, 4900, 5400, 5900])
def test_a_link_cut_anywhere_is_a_host_error(config: Config, limit: int) -> None:
    """From the banner to the command's output: one kind of error, and nothing left behind."""
    before = threading.enumerate()
    relay = Relay(config.server.port, limit)
    with pytest.raises(HostError) as caught:
        host = through(relay, config)
        try:
            run(host, "yes | head -c 100000")
        finally:
            host.close()
    relay.close()
    assert caught.value.why and caught.value.hint
    assert not new_threads(before)


def test_a_host_that_hangs_on_open_is_left(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddtool.transport.ssh.OPEN_TIMEOUT_S", 0.3)
    host = config.connect()
    pids = subprocess.run(
        ["pgrep", "-P", str(config.server.sshd.pid)], capture_output=True, text=True, check=True
    )
    children = [int(pid) for pid in pids.stdout.split()]
    for pid in children:
        os.kill(pid, 19)
    try:
        started = time.monotonic()
        with pytest.raises(ConnectionLost):
            host.open("true")
        assert time.monotonic() - started < 10
    finally:
        for pid in children:
            os.kill(pid, 18)
        host.close()


def test_a_shell_without_python3(config: Config) -> None:
    """The bootstrap's own words, through a real channel."""
    host = config.connect()
    _, stderr, status = run(host, "echo 'ddtool: no python3 on this host' >&2; exit 127")
    assert explain_start_failure(stderr, status, host.user, host.name).exit_code == 4
    host.close()


def fingerprint(key: Path) -> str:
    found = public_key(public(key).split())
    assert found is not None
    return found.fingerprint
