"""A small HTTP client for the service on this host: JSON in, JSON out, one deadline for a whole request."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import Any, Dict, Iterator, NamedTuple, Optional

from . import listener

MOST_BYTES = 32 << 20  # of an answer; it travels on in one frame


class Key(NamedTuple):
    """A service's API key, and the unit that it is for: nobody else who listens on the port may be sent it.

    Without a unit it is for whoever listens there: a server that the operator named by its address.
    """

    value: str
    unit: Optional[str]


class Answer(NamedTuple):
    status: int
    body: Any  # parsed JSON, or text
    seconds: float


def request(
    address: str,
    port: int,
    path: str,
    payload: Optional[Dict[str, Any]] = None,
    api_key: Optional[Key] = None,
    timeout: float = 30.0,
) -> Answer:
    """GET, or POST when there is a payload. Raises OSError when there is no whole answer in time, or when the port
    belongs to somebody who must not see the key."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    headers = {"Authorization": f"Bearer {api_key.value}"} if api_key else {}
    try:
        connection.connect()
        if api_key and api_key.unit is not None:
            listener.check(connection.sock, api_key.unit)
        with _deadline(connection.sock, timeout) as late:
            if payload is None:
                connection.request("GET", path, headers=headers)
            else:
                connection.request(
                    "POST",
                    path,
                    json.dumps(payload).encode(),
                    {**headers, "Content-Type": "application/json"},
                )
            response = connection.getresponse()
            data = response.read(MOST_BYTES + 1)
    except http.client.HTTPException as error:
        raise OSError(f"{path}: broken answer ({error!r})") from error
    finally:
        connection.close()
    if late.is_set():
        raise OSError(f"{path}: no whole answer within {timeout:.0f} s")
    if len(data) > MOST_BYTES:
        raise OSError(f"{path}: the answer is larger than {MOST_BYTES >> 20} MiB")
    text = data.decode(errors="replace")
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        body = text
    return Answer(response.status, body, time.monotonic() - begun)


@contextlib.contextmanager
def _deadline(sock: socket.socket, seconds: float) -> Iterator[threading.Event]:
    """A socket's own timeout starts anew with every byte, so a peer that drips would never be left."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def listening(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 1.0):
            return True
    except OSError:
        return False
