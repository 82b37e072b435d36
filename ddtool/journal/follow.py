"""Reading a host's journal over links that break, every record exactly once.

A frame from the agent is delivered whole or not at all, and carries the cursor behind its last record.
After a cut the next agent starts at that cursor and proves that the record there is still the one that was
read last; if it is gone, a gap record says so. The cursor moves past records that the filters hold back, so
a filter never makes a resume start long ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ddtool.errors import (
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    HostError,
    NameNotResolved,
    RequestTimeout,
)
from ddtool.journal.records import Record
from ddtool.transport.host import Host

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0
PATIENCE_S = 1800.0  # a server with eight GPUs takes minutes to boot

# What a cut link, a sleeping laptop or a host that restarts looks like. A changed host key or a refused
# login is not.
PASSING = (ConnectionLost, ConnectionRefused, ConnectTimeout, NameNotResolved, RequestTimeout)


class Link(Protocol):
    """What is needed of transport.agent.Agent."""

    @property
    def host(self) -> Host: ...

    def stream(self, op: str, **args: Any) -> Iterator[Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Request:
    """What to read. `since`: "10min", "2h", a time of the host, or "invocation" (the current run)."""

    unit: str
    follow: bool = False
    since: str | None = None
    after_cursor: str | None = None
    grep: str | None = None
    rank: int | None = None
    level: str | None = None
    kernel: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class LinkEvent:
    """The link was lost (`error`), or is back after `away_s` seconds (`error` is None)."""

    away_s: float
    error: HostError | None = None


class Position:
    """Where reading stands: what the next agent is asked for."""

    def __init__(self, request: Request) -> None:
        self.arguments: dict[str, Any] = {**vars(request), "memory": None}
        self._reported_gap: str | None = None

    def take(self, frame: dict[str, Any]) -> list[Record]:
        """The records of a frame that were not delivered before."""
        cursor = frame["cursor"] or self.arguments["after_cursor"]
        # What was there at the start has been read: from now on everything is wanted.
        self.arguments |= {
            "after_cursor": cursor,
            "since": frame["since"],
            "memory": frame["memory"],
            "limit": None,
        }
        records = [Record.from_json(item) for item in frame["records"]]
        return [record for record in records if not self._repeats(record)]

    def _repeats(self, record: Record) -> bool:
        """The gap behind a lost cursor is found again by every agent until a first record follows it."""
        if record.gap is None or record.gap.start is None:
            return False
        known, self._reported_gap = self._reported_gap, record.gap.start
        return known == record.gap.start


def follow(
    connect: Callable[[], Link],
    request: Request,
    *,
    on_event: Callable[[LinkEvent], None] = lambda event: None,
    on_end: Callable[[str], None] = lambda invocation: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Record]:
    """Records as they come; for `request.follow` without end, through any number of cut links.

    `on_end` gets the invocation of each run that ends badly meanwhile, behind its last record.
    The first connection fails as it fails; later ones are tried again for half an hour.
    """
    position = Position(request)
    link = connect()
    while True:
        try:
            for frame in link.stream("journal.read", **position.arguments):
                yield from position.take(frame)
                for invocation in frame["ended"] if request.follow else ():
                    on_end(invocation)
            if not request.follow:
                return
            error: HostError = ConnectionLost("the host ended the log stream: it may be shutting down")
        except PASSING as lost:
            error = lost
        finally:
            link.close()
            link.host.close()
        link = _again(connect, error, on_event, sleep)


def _again(
    connect: Callable[[], Link],
    error: HostError,
    on_event: Callable[[LinkEvent], None],
    sleep: Callable[[float], None],
) -> Link:
    """A new connection, with growing waits between the attempts."""
    lost_at = time.monotonic()
    wait = FIRST_WAIT_S
    on_event(LinkEvent(0.0, error))
    while True:
        sleep(wait)
        try:
            link = connect()
        except PASSING as again:
            if time.monotonic() - lost_at > PATIENCE_S:
                raise
            error = again
        else:
            on_event(LinkEvent(time.monotonic() - lost_at))
            return link
        wait = min(LONGEST_WAIT_S, wait * 2)
