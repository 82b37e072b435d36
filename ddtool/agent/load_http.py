"""A keep-alive HTTP/1.1 connection for streamed answers, cheap enough not to be what a benchmark measures.

An asyncio Protocol without streams or tasks of its own: what arrives is cut into events in the callback that brought
it, under the time at which it came. An event is handed on unparsed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Callable, Dict, List, Optional, Tuple, cast

from . import listener
from .client import Key

CONNECT_S = 10.0
IDLE_S = 2.0  # SGLang's server closes a connection that was idle for 5 s; one that may be closing is not used again
MOST_HEAD = 64 << 10
MOST_BYTES = 64 << 20  # of an event, of a chunk, and of an answer that is no stream
STREAM = "text/event-stream"

OnEvent = Callable[[bytes, float], None]


class Broken(OSError):
    """No whole answer came: the connection was lost, or what came is not HTTP."""


class NoServer(OSError):
    """Nothing answers there any more, or a stranger does: the rest of the pass would only count refusals."""


class Exchange:
    """One request and its answer. `sent` and the times of events are of `time.perf_counter`.

    `done` gives None at the end of the answer, or a Broken. `body`: of an answer that is no stream.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event
        self.sent = 0.0
        self.ended = 0.0
        self.status: Optional[int] = None
        self.headers: Dict[str, str] = {}
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def streams(self) -> bool:
        return self.status == 200 and self.headers.get("content-type", "").startswith(STREAM)


class Connection(asyncio.Protocol):
    """Carries one Exchange at a time."""

    def __init__(self) -> None:
        self._transport: Optional[asyncio.Transport] = None
        self._exchange: Optional[Exchange] = None
        self._buffer = bytearray()
        self._part = b""  # of an event whose end has not come
        self._left: Optional[int] = None  # bytes of the body to come; None while it comes in chunks
        self._idle_since = time.perf_counter()

    def send(self, exchange: Exchange, head_and_body: bytes) -> None:
        assert self._transport is not None
        self._exchange, self._part, self._left = exchange, b"", None
        exchange.sent = time.perf_counter()
        self._transport.write(head_and_body)

    def reusable(self) -> bool:
        """Open, and nothing came that nobody asked for."""
        if self._transport is None or self._transport.is_closing() or self._exchange or self._buffer:
            return False
        return time.perf_counter() - self._idle_since < IDLE_S

    def abort(self) -> None:
        """Nothing more is read or called back."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        try:
            while self._exchange is not None and self._advance(self._exchange, now):
                pass
        except ValueError as error:
            self._end(Broken(f"the answer cannot be read: {error}"))
            self.abort()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        when = "before an answer" if self._exchange and self._exchange.status is None else "within the answer"
        self._end(Broken(f"the connection was closed {when}" + (f": {exc}" if exc else "")))
        self._transport = None

    # Parsing: each step consumes something of the buffer, or returns False to wait for more

    def _advance(self, exchange: Exchange, now: float) -> bool:
        if exchange.status is None:
            return self._head(exchange)
        if self._left is not None:
            return self._plain(exchange, self._left, now)
        return self._chunk(exchange, now)

    def _head(self, exchange: Exchange) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD:
                raise ValueError("its head has no end")
            return False
        exchange.status, exchange.headers = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + 4]
        if exchange.headers.get("transfer-encoding", "").lower() == "chunked":
            return True
        if "content-length" not in exchange.headers:
            raise ValueError("its head says neither its length nor that it comes in chunks")
        self._left = int(exchange.headers["content-length"])
        return True

    def _plain(self, exchange: Exchange, left: int, now: float) -> bool:
        piece = bytes(self._buffer[:left])
        del self._buffer[: len(piece)]
        self._left = left - len(piece)
        self._take(exchange, piece, now)
        if self._left == 0:
            self._end(None, now)
        return False

    def _chunk(self, exchange: Exchange, now: float) -> bool:
        line = self._buffer.find(b"\r\n")
        if line < 0:
            if len(self._buffer) > MOST_HEAD:
                raise ValueError("a chunk has no size")
            return False
        size = int(bytes(self._buffer[:line]).partition(b";")[0], 16)
        if size == 0:
            end = self._buffer.find(b"\r\n\r\n", line)  # trailers may come in between
            if end >= 0:
                del self._buffer[: end + 4]
                self._end(None, now)
            return False
        if not 0 < size <= MOST_BYTES:
            raise ValueError(f"a chunk of {size} bytes")
        start = line + 2
        if len(self._buffer) < start + size + 2:
            return False
        piece = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size + 2]
        self._take(exchange, piece, now)
        return True

    def _take(self, exchange: Exchange, piece: bytes, now: float) -> None:
        if not exchange.streams:
            exchange.body += piece
            if len(exchange.body) > MOST_BYTES:
                raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
            return
        *events, self._part = (self._part + piece).split(b"\n\n")
        if len(self._part) > MOST_BYTES:
            raise ValueError(f"an event is larger than {MOST_BYTES >> 20} MiB")
        for event in events:
            exchange.on_event(event, now)

    def _end(self, error: Optional[Broken], now: Optional[float] = None) -> None:
        exchange, self._exchange = self._exchange, None
        self._idle_since = time.perf_counter()
        if exchange is None:
            return
        exchange.ended = self._idle_since if now is None else now
        if exchange.headers.get("connection", "").lower() == "close":
            self.abort()
        if exchange.done.done():  # cancelled
            return
        if error is None:
            if self._part.strip():
                exchange.on_event(self._part, exchange.ended)
            exchange.done.set_result(None)
        else:
            exchange.done.set_exception(error)


def parse_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    """Status and headers (names in lower case). ValueError when it is no head of an HTTP/1.1 answer."""
    first, *rows = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        raise ValueError(f"it begins with {first[:80]!r}")
    pairs = (row.partition(":") for row in rows)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


class Server:
    """Where requests go, and its idle connections."""

    def __init__(self, address: str, port: int, key: Optional[Key] = None) -> None:
        self.address, self.port = address, port
        self._unit = key.unit if key else None
        self._idle: List[Connection] = []
        name = f"[{address}]" if ":" in address else address
        self._head = f"POST /generate HTTP/1.1\r\nHost: {name}:{port}\r\nAccept: {STREAM}\r\n"
        self._head += "Content-Type: application/json\r\n"
        self._head += f"Authorization: Bearer {key.value}\r\n" if key else ""

    def request(self, body: bytes) -> bytes:
        return f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    async def connection(self) -> Connection:
        """An idle one, or a new one. Raises NoServer."""
        while self._idle:
            found = self._idle.pop()
            if found.reusable():
                return found
            found.abort()
        try:
            made = await asyncio.wait_for(self._connect(), CONNECT_S)
        except asyncio.TimeoutError as error:
            why = f"no connection within {CONNECT_S:.0f} s"
            raise NoServer(f"{self.address}:{self.port}: {why}") from error
        except OSError as error:
            raise NoServer(f"{self.address}:{self.port}: {error}") from error
        return made

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        transport, made = await loop.create_connection(Connection, self.address, self.port)
        try:
            if self._unit is not None:
                sock = transport.get_extra_info("socket")
                await loop.run_in_executor(None, listener.check, sock, self._unit)
            if not made.reusable():
                raise OSError("the connection was closed at once")
        except BaseException:
            made.abort()
            raise
        return made

    async def open(self, count: int) -> None:
        """So many connections at hand, so that none has to be made while time is measured."""
        made = [await self.connection() for _ in range(count)]
        self._idle += made

    def give_back(self, connection: Connection) -> None:
        if connection.reusable():
            self._idle.append(connection)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()
