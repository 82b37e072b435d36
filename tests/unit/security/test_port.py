"""While a service is down, anybody may listen on its port."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ddtool.agent import client, listener


class Stranger(threading.Thread):
    """Another user's server on a port: keeps what it is sent."""

    def __init__(self, answer: bytes = b"HTTP/1.0 200 OK\r\n\r\n{}", drip: bool = False) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.heard = b""
        self._answer, self._drip = answer, drip
        self.start()

    def run(self) -> None:
        try:
            while True:
                peer, _ = self.socket.accept()
                with peer:
                    peer.settimeout(60)
                    self.heard += peer.recv(4096)
                    if not self._drip:
                        peer.sendall(self._answer)
                    while self._drip:
                        peer.sendall(b"x")
                        time.sleep(0.05)
        except OSError:
            return


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.socket.close()


def test_a_stranger_on_the_port_is_not_sent_the_api_key(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)  # so that the listener is somebody else's
    with pytest.raises(OSError, match="its API key was not sent"):
        client.request("127.0.0.1", stranger.port, "/health", api_key=client.Key("k" * 20, "svc"))
    assert b"k" * 20 not in stranger.heard
    monkeypatch.setattr(listener, "users", lambda name: {os.getuid()})  # the unit's own user
    assert client.request("127.0.0.1", stranger.port, "/", api_key=client.Key("k" * 20, "svc")).status == 200


@pytest.mark.parametrize(
    ("family", "bound", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_the_listener_is_found_by_its_address(family: int, bound: str, asked: str) -> None:
    with socket.socket(family) as server:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        assert listener.owners(asked, port) == {os.geteuid()}
    assert listener.owners(asked, port) == set()


def test_one_address_is_not_another(stranger: Stranger) -> None:
    assert listener.owners("127.0.0.2", stranger.port) == set()


@pytest.mark.timeout(20)
def test_a_peer_that_drips_is_left_at_the_deadline() -> None:
    stranger = Stranger(drip=True)
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"timed out|whole answer|broken answer"):
        client.request("127.0.0.1", stranger.port, "/health", timeout=0.5)
    assert time.monotonic() - begun < 10  # it drips without end
    stranger.socket.close()


def test_an_endless_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    stranger = Stranger(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 5000)
    with pytest.raises(OSError, match="larger than"):
        client.request("127.0.0.1", stranger.port, "/health", timeout=5)
    stranger.socket.close()
