"""Links that break: at any byte, while reading, after the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.sshd import Relay
from support.sshhost import Config, Server, new_threads, run

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.sshhost import SshHost


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
