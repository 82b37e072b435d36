"""A transaction whose executor is killed while it undoes: what the next one makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import disk, executor, lock
from ddtool.agent.errors import AgentError, Unhealthy
from ddtool.agent.registry import Context
from ddtool.agent.run import PROGRESS, Run
from ddtool.agent.settle import settle
from ddtool.agent.steps import STEPS, Before, Step

KILLED = "its executor was killed"


class Kill(BaseException):
    """Stands for SIGKILL: nothing of the executor runs any more."""


class Acts(Step):
    """Fails as its `error` says, and is killed in its first undo."""

    undone: list[bool]  # whether the transaction counted as interrupted, of each undo that came to its end
    deadly = True

    def title(self, run: Run) -> str:
        return "act"

    def do(self, run: Run, before: Before) -> None:
        if self.args["error"]:
            raise Unhealthy(self.args["error"], hint="look at its log")
        raise executor.Terminated("the transaction was stopped")

    def undo(self, run: Run, before: Before) -> None:
        if Acts.deadly:
            Acts.deadly = False
            raise Kill
        self.undone.append(run.interrupted)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    Acts.undone, Acts.deadly = [], True
    monkeypatch.setitem(STEPS, "act", Acts)
    return Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")


def run(ctx: Context, ident: str, steps: list[dict[str, Any]]) -> int:
    folder = ctx.state / "txn" / ident
    disk.make_dirs(folder, 0o700)
    (folder / PROGRESS).touch()
    plan = {"id": ident, "kind": "restart", "unit": "unit", "who": "test", "why": None, "steps": steps}
    (folder / "plan.json").write_text(json.dumps(plan))
    return executor.run(ctx, ident)


@pytest.mark.parametrize(
    ("error", "message", "interrupted"),
    [("it does not start", "it does not start", False), ("", KILLED, True)],
)
def test_what_failed_counts_as_failed_also_when_its_undo_is_killed(
    ctx: Context, error: str, message: str, interrupted: bool
) -> None:
    """A stop is different: that it was asked for says nothing against what it broke off."""
    with pytest.raises(Kill):
        run(ctx, "0001", [{"step": "act", "error": error}])
    assert run(ctx, "0002", []) == 0
    assert Acts.undone == [interrupted]
    result = json.loads((ctx.state / "txn/0001/result.json").read_text())
    assert (result["ok"], result["settled"], result["error"]["message"]) == (False, "undone", message)
    audited = [json.loads(line) for line in (ctx.state / "audit.jsonl").read_text().splitlines()]
    assert [(line["txn"], line["error"]) for line in audited] == [("0001", message), ("0002", None)]


def test_a_disk_without_room_for_the_reason_is_undone_nevertheless(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Run.record

    def full(this: Run, **fields: Any) -> None:
        if "failed" in fields:
            raise AgentError("no space left")
        record(this, **fields)

    monkeypatch.setattr(Run, "record", full)
    Acts.deadly = False
    assert run(ctx, "0001", [{"step": "act", "error": "it does not start"}]) == 1
    assert Acts.undone == [False]
    result = json.loads((ctx.state / "txn/0001/result.json").read_text())
    assert result["error"]["message"] == "it does not start" and result["rolled_back"]


def test_the_host_settles_what_was_killed_and_not_what_runs(ctx: Context) -> None:
    """The unit of the transaction before ends while the next one has begun."""
    with pytest.raises(Kill):
        run(ctx, "a", [{"step": "act", "error": None}])
    with lock.hold(ctx, {"txn": "a", "kind": "restart", "unit": "unit", "who": "test", "since_unix": 0}):
        assert settle(ctx) == 0
        assert [folder.name for folder in (ctx.state / "txn").iterdir()] == ["a"] and Acts.undone == []
    assert settle(ctx) == 0 and Acts.undone == [True]
    assert len(list((ctx.state / "txn").iterdir())) == 2
