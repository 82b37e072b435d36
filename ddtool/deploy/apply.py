"""Running a plan on the host and watching it: the only way in which ddtool changes one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ddtool.deploy.plan import Plan
from ddtool.deploy.session import operator
from ddtool.errors import ConnectionLost, DdtoolError, HostError, Unhealthy, from_agent
from ddtool.transport.agent import Agent

Event = dict[str, Any]
OnEvent = Callable[[Event], None]

ATTACH = "ddtool deploy --attach shows how it goes"


def transaction(kind: str, unit: str, steps: list[dict[str, Any]], why: str | None = None) -> dict[str, Any]:
    """The plan document of ddtool.agent.run. Ids sort by time."""
    ident = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + secrets.token_hex(3)
    return {"id": ident, "kind": kind, "unit": unit, "who": operator(), "why": why, "steps": steps}


def temporary(kind: str, unit: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """A transaction that the host undoes at its end, whatever came of it."""
    return {**transaction(kind, unit, steps), "temporary": True}


def apply(agent: Agent, plan: Plan, on_event: OnEvent, why: str | None = None) -> Event:
    """Run the plan's transaction and return its result. A lost link leaves it running: the error says how to attach."""
    return run_steps(agent, plan.kind, plan.unit, plan.steps, on_event, why)


def run_steps(
    agent: Agent,
    kind: str,
    unit: str,
    steps: list[dict[str, Any]],
    on_event: OnEvent,
    why: str | None = None,
) -> Event:
    return run(agent, transaction(kind, unit, steps, why), on_event)


def run(agent: Agent, document: Mapping[str, Any], on_event: OnEvent, hint: str = ATTACH) -> Event:
    """The result of a transaction. A lost link leaves it running to its end on the host: `hint` says how to attach."""
    return watch(agent.stream("txn.run", plan=dict(document)), on_event, hint)


def attach(agent: Agent, on_event: OnEvent, ident: str | None = None, hint: str = ATTACH) -> Event:
    """Follow a transaction from its beginning: the one named, the one that runs on the host now, or the last one."""
    named = {"txn": ident} if ident else {}
    return watch(agent.stream("txn.follow", **named), on_event, hint)


def stop(agent: Agent, ident: str) -> bool:
    """Ask the host to end a transaction and undo it; False when it is over already."""
    return bool(agent.call("txn.stop", txn=ident))


def watch(events: Iterator[Event], on_event: OnEvent, hint: str) -> Event:
    try:
        for event in events:
            if event["event"] == "done":
                result: Event = event["result"]
                return result
            if event["event"] == "died":
                raise DdtoolError(
                    "the transaction's process on the host was killed",
                    hint="the next changing command finishes or undoes it; `ddtool status` shows where it stands",
                )
            on_event(event)
    except HostError as error:
        raise ConnectionLost(
            f"{error.message}; the transaction goes on on the host",
            why=error.why,
            hint=hint,
        ) from error
    raise ConnectionLost("the agent stopped reporting", hint=hint)


def settle(agent: Agent, facts: dict[str, Any], unit: str, on_event: OnEvent) -> bool:
    """Finish or undo what a killed executor left, before a new plan is made on top of it."""
    if not facts["transactions"]["dead"]:
        return False
    raise_for(run_steps(agent, "settle", unit, [], on_event))
    return True


def raise_for(result: Event) -> None:
    """The transaction's error, as the class it names; what was rolled back is told with it."""
    if result["ok"]:
        return
    error = from_agent(result["error"])
    if not result.get("rolled_back", True):
        problems = "; ".join(result.get("undo_problems", []))
        raise DdtoolError(f"{error.message}. The rollback failed as well: {problems}", hint="ddtool status")
    evidence = result.get("evidence")
    if evidence and error.hint is None:
        stacks = "the stacks above show where its processes hung; " if evidence["stacks"] else ""
        error.hint = (
            f"{stacks}`ddtool crash last` shows the verdict again, `ddtool crash bundle` fetches everything "
            f"from {evidence['folder']}"
        )
    if isinstance(error, Unhealthy) and result.get("restored"):
        error.why = f"rolled back: release {result['restored']} runs again"
    elif isinstance(error, Unhealthy):
        error.why = "rolled back: the host is as it was before"
    raise error
