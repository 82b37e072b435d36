"""A transaction goes on without its watcher: the error says how to watch it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddtool.bench import host_run
from ddtool.deploy import apply, experiment
from ddtool.errors import ConnectionLost


class Cut:
    """An agent whose link breaks behind its first event."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def stream(self, op: str, **args: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((op, args))
        yield {"event": "begin"}
        raise ConnectionLost("the connection was lost")


@pytest.mark.parametrize(
    ("attach", "command"),
    [
        (apply.attach, "ddtool deploy --attach"),
        (experiment.attach, "ddtool diag run --attach"),
        (host_run.attach, "ddtool bench --attach"),
    ],
)
def test_a_lost_link_says_how_to_attach(attach: Callable[..., Any], command: str) -> None:
    agent, seen = Cut(), []
    with pytest.raises(ConnectionLost, match="goes on on the host") as lost:
        attach(agent, seen.append, "20261130T000000-abc")
    assert lost.value.hint is not None and lost.value.hint.startswith(command)
    assert (seen, agent.asked) == ([{"event": "begin"}], [("txn.follow", {"txn": "20261130T000000-abc"})])


@pytest.mark.parametrize("run", [apply.run, experiment.run, host_run.run])
def test_without_a_name_it_is_the_one_that_runs(run: Callable[..., Any]) -> None:
    agent = Cut()
    with pytest.raises(ConnectionLost):
        run(agent, {"id": "x"}, lambda event: None)
    with pytest.raises(ConnectionLost):
        apply.attach(agent, lambda event: None)  # type: ignore[arg-type]
    assert agent.asked == [("txn.run", {"plan": {"id": "x"}}), ("txn.follow", {})]
