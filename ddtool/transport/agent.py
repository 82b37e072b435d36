"""The operator's end of the agent: handshake, requests with deadlines, streams with heartbeats."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ddtool.errors import (
    ConnectionLost,
    DdtoolError,
    HostError,
    PreflightError,
    RequestTimeout,
    from_agent,
)
from ddtool.transport.bootstrap import MAGIC, agent_zipapp, digest, parcel, start_command
from ddtool.transport.host import Channel, Host
from ddtool.transport.start import endless_noise, explain_start_failure, no_start

HANDSHAKE_S = 30.0
SILENCE_S = 20.0  # the agent beats every 5 s while it streams
GREETING_LIMIT = 256 << 10  # banners and .bashrc noise before the handshake line
MAX_FRAME = 64 << 20


class Agent:
    """One agent process on a host. `round_trips` counts frames sent after the handshake; `python` is the host's
    python3, `uid` the agent's user there.
    """

    python: tuple[int, ...]
    uid: int

    def __init__(self, host: Host, *, zipapp: bytes | None = None) -> None:
        self.host = host
        self.round_trips = 0
        self._zipapp = zipapp if zipapp is not None else agent_zipapp()
        self._buffer = bytearray()
        self._noise = bytearray()  # what came before the agent's first line
        self._channel: Channel = host.open(
            start_command(digest(self._zipapp), host.state, host.run, become=host.become)
        )
        try:
            self._handshake()
        except BaseException:
            self._channel.close()
            raise

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def call(self, op: str, *, deadline_s: float = 30.0, **args: Any) -> Any:
        """One request, one result. Raises the error that the agent names, or RequestTimeout, or ConnectionLost."""
        ident = self._send(op, args, deadline_s)
        # The agent enforces the deadline itself; the margin is for the way there and back.
        reply = self._reply(ident, time.monotonic() + deadline_s + 10.0, op)
        return reply.get("result")

    def stream(self, op: str, **args: Any) -> Iterator[Any]:
        """Results of a streaming request until the agent ends it. Silence for 20 s counts as a lost link."""
        ident = self._send(op, args, 0.0)
        while True:
            try:
                reply = self._reply(ident, time.monotonic() + SILENCE_S, op)
            except RequestTimeout as error:
                raise ConnectionLost(
                    f"{self.host.name}: no sign of life for {SILENCE_S:.0f} s during {op}"
                ) from error
            if reply.get("end"):
                return
            if "result" in reply:
                yield reply["result"]

    def _send(self, op: str, args: dict[str, Any], deadline_s: float) -> int:
        self.round_trips += 1
        request = {"id": self.round_trips, "op": op, "args": args, "deadline_s": deadline_s}
        data = json.dumps(request, separators=(",", ":")).encode()
        self._channel.send(struct.pack(">I", len(data)) + data)
        return self.round_trips

    def _reply(self, ident: int, deadline: float, op: str) -> dict[str, Any]:
        while True:
            (size,) = struct.unpack(">I", self._read(4, deadline, op))
            if size > MAX_FRAME:
                raise ConnectionLost(f"{self.host.name}: the agent's answer to {op} is not a frame")
            reply = self._object(self._read(size, deadline, op), op)
            if reply.get("id") != ident:
                continue  # the tail of a stream that the caller has left
            if reply.get("ok") is False:
                raise from_agent(reply.get("error"))
            return reply

    def _object(self, data: bytes, op: str) -> dict[str, Any]:
        """What came is from a host that need not be what it says."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConnectionLost(
                f"{self.host.name}: the agent's answer to {op} is not JSON", why=str(error)[:200]
            ) from error
        if not isinstance(found, dict):
            raise ConnectionLost(f"{self.host.name}: the agent's answer to {op} is not an object")
        return found

    def _read(self, size: int, deadline: float, op: str) -> bytes:
        while len(self._buffer) < size:
            self._fill(deadline, op)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _fill(self, deadline: float, op: str) -> None:
        try:
            part = self._channel.recv(1 << 18, max(0.01, deadline - time.monotonic()))
        except TimeoutError as error:
            raise RequestTimeout(
                f"{self.host.name} did not answer {op} in time",
                hint="the host may be overloaded or the link stalled; try again, or look with ssh",
            ) from error
        if not part:
            raise ConnectionLost(
                f"{self.host.name}: the agent ended during {op}",
                why=self._channel.stderr_tail().strip() or None,
            )
        self._buffer += part

    def _handshake(self) -> None:
        deadline = time.monotonic() + HANDSHAKE_S
        hello = self._greeting(deadline)
        try:
            self.python, self.uid = tuple(map(int, hello["python"])), int(hello["uid"])
            have = bool(hello["have"])
        except (KeyError, TypeError, ValueError) as error:
            raise HostError(
                f"{self.host.name}: what answers there is not ddtool's agent", why=f"its first line: {hello}"
            ) from error
        if self.python < (3, 8):
            version = ".".join(map(str, self.python))
            raise PreflightError(
                f"{self.host.name}: python3 is {version}; the agent needs 3.8 or later",
                hint="install a newer python3 on the host",
            )
        if not have:
            self._channel.send(parcel(self._zipapp))
            answer = self._greeting(deadline)
            if "error" in answer:
                raise DdtoolError(f"{self.host.name}: {answer['error']}", hint="try again")

    def _greeting(self, deadline: float) -> dict[str, Any]:
        """The loader's next line; whatever a login shell printed before it is skipped."""
        prefix = MAGIC.encode() + b" "
        while True:
            end = self._buffer.find(b"\n") + 1
            if end:
                line = bytes(self._buffer[:end])
                del self._buffer[:end]  # in place: a copy of what is left for each line would take seconds
                if line.startswith(prefix):
                    return self._object(line[len(prefix) :], "the handshake")
                self._noise += line
            if len(self._noise) + len(self._buffer) > GREETING_LIMIT:
                raise endless_noise(self._told(), self.host.name)
            if end:
                continue
            try:
                part = self._channel.recv(65536, max(0.01, deadline - time.monotonic()))
            except TimeoutError as error:
                raise no_start(
                    self._told() + self._channel.stderr_tail(), HANDSHAKE_S, self.host.name
                ) from error
            if not part:
                raise explain_start_failure(
                    self._channel.stderr_tail(),
                    self._channel.exit_status(5.0),
                    self.host.user,
                    self.host.name,
                    self._told(),
                )
            self._buffer += part

    def _told(self) -> str:
        """What the login shell has written to stdout in place of the agent's first line."""
        return (self._noise + self._buffer).decode(errors="replace")
