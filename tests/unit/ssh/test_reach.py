"""Links that do not come about: names, ports, silence, other services."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import USER, Sshd, free_port, public, silent_listener
from support.sshhost import Config, assert_reaches, behind

from ddtool.errors import (
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    HostError,
    HostKeyUnknown,
    NameNotResolved,
)


def test_a_name_that_does_not_resolve(config: Config) -> None:
    error = config.failure(NameNotResolved, HostName="name.invalid")
    assert "name.invalid" in error.message


@pytest.mark.parametrize("known", ["[::1]:{port}", "::1"])
def test_an_address_of_ipv6(config: Config, tmp_path: Path, known: str) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], address="::1") as sshd:
        config.know(f"{known.format(port=sshd.port)} {public(config.server.ed25519)}")
        host = config.connect(HostName="::1", Port=sshd.port)
        assert host.where == f"{USER}@[::1]:{sshd.port}"
        assert_reaches(host)
        assert_reaches(config.connect(HostName="::1", Port=sshd.port, AddressFamily="inet6"))
        options = {"HostName": "::1", "Port": sshd.port, "AddressFamily": "inet"}
        assert "cannot resolve ::1" in config.failure(NameNotResolved, **options).message


def link_local() -> str | None:
    """An address of this machine that says nothing without an interface, as `fe80::1%eth0`."""
    table = Path("/proc/net/if_inet6")
    rows = [line.split() for line in table.read_text().splitlines()] if table.exists() else []
    found = next((row for row in rows if row[3] == "20"), None)
    return f"{ipaddress.IPv6Address(bytes.fromhex(found[0]))}%{found[5]}" if found else None


def test_an_address_with_a_scope(config: Config, tmp_path: Path) -> None:
    address = link_local()
    if not address:
        pytest.skip("no link-local address here")
    with Sshd(
        tmp_path / "run", [config.server.ed25519], [public(config.server.user)], address=address
    ) as sshd:
        config.know(f"[{address}]:{sshd.port} {public(config.server.ed25519)}")
        options = {"HostName": address.replace("%", "%%"), "Port": sshd.port}
        host = config.connect(**options)
        assert host.where == f"{USER}@[{address}]:{sshd.port}"
        assert_reaches(host)
        config.openssh(expect=True)
        config.known_hosts.write_text(
            f"{config.known_hosts.read_text()}[127.0.0.1]:{config.server.port} {public(config.server.ed25519)}\n"
        )
        assert_reaches(config.connect(**options, **behind(config, "a", "b")))


def test_an_address_to_come_from_that_is_not_ours(config: Config) -> None:
    error = config.failure(HostError, BindAddress="192.0.2.1")
    assert "Cannot assign requested address" in (error.why or "")


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


def _answered(port: int) -> socket.socket:
    """A connection that has one of the sshd's places; whoever looked whether it listens may still have one, too."""
    while True:
        sock = socket.create_connection(("127.0.0.1", port))
        if sock.recv(4) == b"SSH-":
            return sock
        sock.close()


def test_an_sshd_that_is_full(config: Config, tmp_path: Path) -> None:
    options = "MaxStartups 2:100:2\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], options) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        with contextlib.ExitStack() as waiting:
            for _ in range(2):
                waiting.enter_context(_answered(sshd.port))
            error = config.failure(ConnectionLost, Port=sshd.port)
    assert "before its SSH banner" in error.message
    assert "MaxStartups" in f"{error.why} {error.hint}"


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


def test_only_what_is_allowed_is_used(config: Config) -> None:
    host = config.connect(
        KexAlgorithms="sntrup761x25519-sha512@openssh.com,ecdh-sha2-nistp384",
        Ciphers="aes128-ctr",
        MACs="hmac-sha2-512",
    )
    transport = host._transport
    assert (transport.local_cipher, transport.local_mac) == ("aes128-ctr", "hmac-sha2-512")
    host.close()
    error = config.failure(HostError, KexAlgorithms="sntrup761x25519-sha512@openssh.com")
    assert "leaves no kex" in error.message


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
