"""The sandbox's network: TCP ports on 127.0.0.1 relayed to ports inside, with faults for tests.

Each side is a real TCP connection of its own. A stalled link therefore still completes the handshake and then
says nothing, as a partition looks to a connection that was already open.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

ADDRESS = "127.0.0.1"
_CHUNK = 256 * 1024
_QUEUED_CHUNKS = 16

Item = tuple[float, bytes]  # when it may leave (loop time), and what; b"" is the end


class Cut(ConnectionResetError):
    """The link was cut on purpose."""


@dataclass
class Faults:
    """What is wrong with the link, for tests. 0 means not at all."""

    delay: float = 0.0  # seconds each way
    rate: float = 0.0  # bytes per second, each way of each connection
    cut_after: int = 0  # bytes, both ways of all connections together, until every connection is reset; once
    cuts: int = 0  # how often cut_after has struck

    def admit(self, size: int) -> tuple[int, bool]:
        """How many of the next `size` bytes still pass, and whether the cut comes right after them."""
        if not self.cut_after:
            return size, False
        passing = min(size, self.cut_after)
        self.cut_after -= passing
        self.cuts += not self.cut_after
        return passing, not self.cut_after


class Relay:
    def __init__(self, socket_inside: Callable[[], socket.socket]) -> None:
        self.faults = Faults()
        self._socket_inside = socket_inside
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._listeners: dict[int, socket.socket] = {}  # port inside -> listening socket
        self._acceptors: dict[int, asyncio.Task[None]] = {}
        self._links: set[asyncio.Task[None]] = set()

    @property
    def ports(self) -> Mapping[int, int]:
        """Port on ADDRESS of each relayed port inside."""
        return {inside: listener.getsockname()[1] for inside, listener in self._listeners.items()}

    def publish(self, inside: int) -> None:
        """Relay a free port of this machine to port `inside`."""
        self._listeners[inside] = _bound(0)
        self._listen(inside)

    def stall(self, stalled: bool) -> None:
        """While stalled nothing flows and nothing closes."""
        if stalled:
            self._flowing.clear()
        else:
            self._flowing.set()

    def refuse(self, refusing: bool) -> None:
        """While refusing, connections are reset and new ones refused; the ports stay ours."""
        for inside, listener in self._listeners.items():
            port = listener.getsockname()[1]
            if refusing and inside in self._acceptors:
                self._acceptors.pop(inside).cancel()
                listener.close()
                self._listeners[inside] = _bound(port)  # bound but not listening: that is refused
            elif not refusing and inside not in self._acceptors:
                self._listen(inside)
        if refusing:
            self.cut()

    def cut(self) -> None:
        """Reset every open connection, now."""
        for link in self._links - {asyncio.current_task()}:
            link.cancel()

    def clear(self) -> None:
        """No faults any more. Connections that were cut stay cut."""
        self.faults = Faults()
        self.stall(False)
        self.refuse(False)

    def close(self) -> None:
        """Give the ports back; open connections are reset."""
        self.refuse(True)
        for listener in self._listeners.values():
            listener.close()

    def _listen(self, inside: int) -> None:
        listener = self._listeners[inside]
        listener.listen(128)
        self._acceptors[inside] = asyncio.create_task(self._accept(listener, inside))

    async def _accept(self, listener: socket.socket, inside: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setblocking(False)
            link = asyncio.create_task(self._link(client, inside))
            self._links.add(link)
            link.add_done_callback(self._links.discard)

    async def _link(self, client: socket.socket, inside: int) -> None:
        """Both ways of one connection, until both have ended or one breaks."""
        ends, ways = [client], []
        clean = False
        try:
            await self._flowing.wait()
            server = self._socket_inside()
            server.setblocking(False)
            ends.append(server)
            await asyncio.get_running_loop().sock_connect(server, (ADDRESS, inside))
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target in ((client, server), (server, client)):
                queue: asyncio.Queue[Item] = asyncio.Queue(_QUEUED_CHUNKS)
                ways += [
                    asyncio.create_task(self._pull(source, queue)),
                    asyncio.create_task(self._push(queue, target)),
                ]
            await asyncio.gather(*ways)
            clean = True
        except Cut:
            self.cut()
        except OSError:
            pass  # a peer broke its side: the other side learns it by the reset below
        finally:
            for way in ways:
                way.cancel()
            try:
                await asyncio.gather(*ways, return_exceptions=True)  # all ended before a descriptor is closed
            finally:
                for end in ends:
                    _close(end, reset=not clean)

    async def _pull(self, source: socket.socket, queue: asyncio.Queue[Item]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            rate = self.faults.rate
            await self._flowing.wait()
            data = await loop.sock_recv(source, max(512, min(_CHUNK, int(rate / 20))) if rate else _CHUNK)
            await queue.put((loop.time() + self.faults.delay, data))
            if not data:
                return

    async def _push(self, queue: asyncio.Queue[Item], target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await queue.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._flowing.wait()
            if not data:
                with suppress(OSError):
                    target.shutdown(socket.SHUT_WR)
                return
            passing, cut = self.faults.admit(len(data))
            await loop.sock_sendall(target, data[:passing])
            if cut:
                raise Cut
            if self.faults.rate:
                await asyncio.sleep(len(data) / self.faults.rate)


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((ADDRESS, port))
    bound.setblocking(False)
    return bound


def _close(end: socket.socket, reset: bool) -> None:
    if reset:
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
