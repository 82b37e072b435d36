"""Sending wheels to a host: in pieces, from where it has them, over as many connections as it takes."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.errors import ConnectionLost, HostError
from ddtool.transport.agent import Agent

if TYPE_CHECKING:
    from ddtool.deploy.wheelhouse import Wheel, Wheelhouse

Event = dict[str, Any]
FIRST, LEAST, MOST = 1 << 18, 1 << 16, 8 << 20  # bytes of a piece
PIECE_S = 1.0  # what a piece should take: no link waits long for nothing, and round trips do not count
TOLD_S = 2.0
TRIES, PAUSE_S = 5, 2.0  # to reach the host again after a cut
STUCK = 4  # cuts in a row without a piece that arrived


def send(
    house: Wheelhouse,
    wheels: Sequence[Wheel],
    agent: Agent,
    reconnect: Callable[[], Agent],
    on_event: Callable[[Event], None],
) -> None:
    """Wheels of a wheelhouse, each read and compared with its manifest before the first byte leaves.

    Raises VerificationFailed for one that is not what was collected, ConnectionLost as `Upload.send`.
    """
    house.require_whole(wheels)
    Upload(agent, reconnect, on_event).send(house.folder, wheels)


class Upload:
    """`agent`: the connection in use, another one after a cut link. `sent`: bytes of wheels that went out."""

    def __init__(
        self, agent: Agent, reconnect: Callable[[], Agent], on_event: Callable[[Event], None]
    ) -> None:
        self.agent = agent
        self.sent = 0
        self._reconnect = reconnect
        self._tell = on_event
        self._piece = FIRST
        self._told = 0.0

    def send(self, folder: Path, wheels: Sequence[Wheel]) -> None:
        """All of them. A cut link is taken up again while the host is reached and something arrives between two cuts.

        Raises ConnectionLost otherwise; what has arrived stays on the host for the next try.
        """
        reached, stuck = -1, 0
        while True:
            try:
                held = self.agent.call("wheels.held", shas=[wheel.sha256 for wheel in wheels])
                stuck = 0 if sum(held.values()) > reached else stuck + 1
                reached = max(reached, sum(held.values()))
                if stuck < STUCK:
                    self._send(folder, wheels, held)
                    return
                raise ConnectionLost(f"{self.agent.host.name}: the link breaks before anything arrives")
            except ConnectionLost as error:
                if stuck >= STUCK:
                    raise _given_up(error) from error
                self._piece = max(LEAST, self._piece // 4)
                self._tell({"event": "link-lost", "message": error.message})
                self.agent = self._connected(error)

    def _connected(self, lost: ConnectionLost) -> Agent:
        for _ in range(TRIES):
            try:
                return self._reconnect()
            except HostError as error:
                lost = ConnectionLost(error.message, why=error.why)
                time.sleep(PAUSE_S)
        raise _given_up(lost)

    def _send(self, folder: Path, wheels: Sequence[Wheel], held: Mapping[str, int]) -> None:
        total = sum(wheel.bytes for wheel in wheels)
        done = 0
        for wheel in wheels:
            at = held.get(wheel.sha256, 0)
            with (folder / wheel.file).open("rb") as stream:
                while at < wheel.bytes:
                    stream.seek(at)
                    at = self._put(wheel, at, stream.read(self._piece))
                    self._progress(wheel, done + at, total)
            done += wheel.bytes

    def _put(self, wheel: Wheel, at: int, piece: bytes) -> int:
        begun = time.monotonic()
        data = base64.b64encode(piece).decode()
        given = {"sha": wheel.sha256, "size": wheel.bytes, "offset": at, "data": data}
        here: int = self.agent.call("wheels.put", deadline_s=300.0, **given)  # the last one is hashed there
        self.sent += len(piece)
        took = time.monotonic() - begun
        self._piece = min(MOST, self._piece * 2) if took < PIECE_S / 2 else self._piece
        self._piece = max(LEAST, self._piece // 2) if took > PIECE_S * 2 else self._piece
        return here

    def _progress(self, wheel: Wheel, done: int, total: int) -> None:
        if done == total or time.monotonic() - self._told > TOLD_S:
            self._told = time.monotonic()
            self._tell({"event": "sending", "file": wheel.file, "done": done, "total": total})


def _given_up(error: ConnectionLost) -> ConnectionLost:
    return ConnectionLost(
        f"{error.message}; what has arrived stays there, and nothing else was touched",
        why=error.why,
        hint="run the same command again: it goes on where it stopped",
    )
