"""A small HTTP client for the service on this host: JSON in, JSON out, one deadline for a whole request."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any, Dict, NamedTuple, Optional


class Answer(NamedTuple):
    status: int
    body: Any  # parsed JSON, or text
    seconds: float


def request(
    address: str,
    port: int,
    path: str,
    payload: Optional[Dict[str, Any]] = None,
    api_key: Optional[str] = None,
    timeout: float = 30.0,
) -> Answer:
    """GET, or POST when there is a payload. Raises OSError when there is no answer in time."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        if payload is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request(
                "POST", path, json.dumps(payload).encode(), {**headers, "Content-Type": "application/json"}
            )
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"{path}: broken answer ({error!r})") from error
    finally:
        connection.close()
    try:
        body: Any = json.loads(text)
    except ValueError:
        body = text
    return Answer(response.status, body, time.monotonic() - begun)


def listening(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 1.0):
            return True
    except OSError:
        return False
