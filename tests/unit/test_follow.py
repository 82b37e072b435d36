"""Following through cut links: against an agent that keeps the protocol and breaks wherever the test says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.errors import ConnectionLost, ConnectionRefused, HostKeyChanged
from ddtool.journal import follow as following
from ddtool.journal.follow import LinkEvent, Request, follow


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "schema": "ddtool.record/1",
        "boot": "b1",
        "seq": number,
        "cursor": str(number),
        "unix_us": 1,
        "source": "unit",
        "pid": 1,
        "rank": None,
        "level": None,
        "text": f"line {number}",
        **fields,
    }


class FakeHost:
    """A host with `total` records. Each connection breaks after its number of frames in `cuts`; the last does not."""

    def __init__(self, total: int, cuts: list[int], batch: int = 3) -> None:
        self.total, self.cuts, self.batch = total, cuts, batch
        self.asked: list[dict[str, Any]] = []
        self.closed = 0

    def connect(self) -> FakeHost:
        return self

    @property
    def host(self) -> FakeHost:
        return self

    def close(self) -> None:
        self.closed += 1

    def stream(self, op: str, **args: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(args)
        budget = self.cuts.pop(0) if self.cuts else None
        start = int(args["after_cursor"] or 0) + 1
        for sent, first in enumerate(range(start, self.total + 1, self.batch)):
            if sent == budget:
                raise ConnectionLost("cut")
            numbers = range(first, min(first + self.batch, self.total + 1))
            kept = [record(number) for number in numbers if number % 2 or not args["grep"]]
            yield {
                "records": kept,
                "cursor": str(numbers[-1]),
                "since": "@5",
                "memory": {"ranks": {}},
                "ended": [],
            }
        if budget is not None:
            raise ConnectionLost("cut")


def read(host: FakeHost, count: int, **options: Any) -> list[int | None]:
    records = follow(host.connect, Request("u", follow=True, **options), sleep=lambda seconds: None)
    return [next(records).seq for _ in range(count)]


@given(st.lists(st.integers(0, 6), max_size=10), st.integers(1, 5))
def test_every_record_once_through_any_cuts(cuts: list[int], batch: int) -> None:
    assert read(FakeHost(40, cuts, batch), 40) == list(range(1, 41))


@given(st.lists(st.integers(0, 6), max_size=10), st.integers(1, 5))
def test_a_filter_changes_nothing_about_it(cuts: list[int], batch: int) -> None:
    assert read(FakeHost(40, cuts, batch), 20, grep="odd") == list(range(1, 41, 2))


def test_a_resume_asks_for_everything_after_the_cursor_from_the_same_moment() -> None:
    host = FakeHost(6, [1])
    read(host, 6, since="10min", limit=5)
    assert [(ask["after_cursor"], ask["since"], ask["limit"]) for ask in host.asked] == [
        (None, "10min", 5),
        ("3", "@5", None),
    ]
    assert host.asked[1]["memory"] == {"ranks": {}}


def test_without_follow_the_end_is_the_end_and_the_link_is_closed() -> None:
    host = FakeHost(4, [])
    assert [item.seq for item in follow(host.connect, Request("u"))] == [1, 2, 3, 4]
    assert host.closed == 2  # the agent and its host


def test_a_run_that_ends_badly_is_told_behind_its_last_record() -> None:
    class Ending(FakeHost):
        def stream(self, op: str, **args: Any) -> Iterator[dict[str, Any]]:
            for frame in super().stream(op, **args):
                yield {**frame, "ended": ["run-1"] if frame["cursor"] == "2" else []}

    heard: list[object] = []
    host = Ending(4, [], batch=1)
    for item in follow(host.connect, Request("u", follow=True), on_end=heard.append):
        heard.append(item.seq)
        if item.seq == 4:
            break
    assert heard == [1, 2, "run-1", 3, 4]


def test_a_stream_that_the_host_ends_is_a_lost_link() -> None:
    host, events = FakeHost(2, []), []
    records = follow(
        host.connect, Request("u", follow=True), on_event=events.append, sleep=lambda seconds: None
    )
    assert [next(records).seq for _ in range(2)] == [1, 2]
    host.total = 3
    assert next(records).seq == 3
    assert isinstance(events[0].error, ConnectionLost)


def test_losses_and_returns_are_told_and_waits_grow() -> None:
    host, events, waits = FakeHost(4, [1]), [], []
    refusals = iter([None, ConnectionRefused("no"), ConnectionRefused("no"), None])

    def connect() -> FakeHost:
        error = next(refusals)
        if error:
            raise error
        return host

    records = follow(connect, Request("u", follow=True), on_event=events.append, sleep=waits.append)
    assert [next(records).seq for _ in range(4)] == [1, 2, 3, 4]
    assert [type(event) for event in events] == [LinkEvent, LinkEvent]
    assert (str(events[0].error), events[1].error) == ("cut", None)
    assert waits == [0.2, 0.4, 0.8]


def test_a_changed_host_key_is_not_tried_again() -> None:
    host = FakeHost(4, [1])
    answers = iter([host])

    def connect() -> FakeHost:
        for answer in answers:
            return answer
        raise HostKeyChanged("another key")

    records = follow(connect, Request("u", follow=True), sleep=lambda seconds: None)
    with pytest.raises(HostKeyChanged):
        list(records)


def test_the_first_connection_fails_as_it_fails() -> None:
    def connect() -> FakeHost:
        raise ConnectionRefused("nobody listens")

    with pytest.raises(ConnectionRefused):
        next(follow(connect, Request("u", follow=True)))


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 600))
    monkeypatch.setattr(following.time, "monotonic", lambda: float(next(clock)))
    host = FakeHost(4, [0])
    answers = iter([host])

    def connect() -> FakeHost:
        for answer in answers:
            return answer
        raise ConnectionRefused("still down")

    with pytest.raises(ConnectionRefused, match="still down"):
        next(follow(connect, Request("u", follow=True), sleep=lambda seconds: None))


def test_a_lost_cursor_is_told_once_until_a_record_follows() -> None:
    position = following.Position(Request("u", after_cursor="5"))
    lost = record(0, cursor=None, gap={"from": "5", "to": None, "reason": "vacuum"})
    frame = {"records": [lost], "cursor": "5", "since": None, "memory": {}}
    assert len(position.take(frame)) == 1
    assert position.take(frame) == []
    boot = record(0, gap={"from": "6", "to": "7", "reason": "boot"})
    assert len(position.take({**frame, "records": [boot]})) == 1
