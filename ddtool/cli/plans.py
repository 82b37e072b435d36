"""A plan as a person reads it before saying yes, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddtool.cli import output

if TYPE_CHECKING:
    from ddtool.deploy.outage import Outage
    from ddtool.deploy.plan import Change, Plan

MARKS = {"create": "+", "change": "~", "remove": "-", "keep": "=", "run": ">"}
COLOURS = {"create": "green", "change": "yellow", "remove": "red", "keep": "dim", "run": "bold"}


def show(plan: Plan, host: str, json: bool, round_trips: int = 0) -> None:
    if json:
        output.emit("plan", as_json(plan, host, round_trips))
        return
    console = output.stdout()
    console.print(f"{plan.kind} {plan.unit} on {host}", style="bold")
    show_changes(plan.changes)
    console.print(f"  outage: {describe_outage(plan.outage)}", soft_wrap=True)
    for warning in plan.warnings:
        output.words(f"warning: {warning}", "yellow")


def show_changes(changes: Sequence[Change]) -> None:
    """One line each, its diff below it."""
    console = output.stdout()
    for change in changes:
        console.print(
            f"  {MARKS[change.kind]} {output.safe(change.what)}  {output.safe(change.detail)}",
            style=COLOURS[change.kind],
            soft_wrap=True,
        )
        for line in change.diff.splitlines():
            console.print(f"      {output.safe(line)}", style=diff_colour(line), soft_wrap=True)


def show_unknown(functions: Sequence[Mapping[str, Any]]) -> None:
    """Functions in a version that a patch was not checked on, for the operator to read before saying yes."""
    for item in functions:
        where = f"{item['function']} in {item['file']}"
        output.words(f"{item['patch']} was not checked on this version of {where}:", "yellow")
        for line in item["source"].splitlines():
            output.words(f"    {line}")
        for edit in item["edits"]:
            output.words(f"  proposed: {edit['place']} `{edit['anchor']}`")
            for line in edit["code"].splitlines():
                output.words(f"    {line}")


def diff_colour(line: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")


def describe_outage(outage: Outage) -> str:
    if outage.seconds == 0:
        return f"none ({outage.source})"
    return f"{output.minutes(outage.seconds)} ({outage.source}){hits(outage.requests, outage.drain_s)}"


def hits(requests: Mapping[str, Any] | None, drain_s: float) -> str:
    """Whom the stop cuts off, as far as anybody can know beforehand."""
    from ddtool.deploy.outage import in_flight

    if requests is None:
        return ""
    count = in_flight(requests)
    if count is None:
        return f"; how many requests are in flight is not known: {requests['unknown']}"
    if count == 0:
        return "; no request is in flight now"
    split = f"{requests['running']} running, {requests['waiting']} waiting"
    if drain_s:
        return f"; {count} in flight now ({split}), waited for at most {drain_s:.0f} s"
    return f"; {count} in flight now ({split}), which a stop cuts off: --drain SECONDS waits for them"


def put_back(result: Mapping[str, Any]) -> str:
    """What a transaction that undoes itself left."""
    restored = result.get("restored")
    return f"{restored} started again" if restored else "the service is stopped, as it was"


def tell_drained(result: Mapping[str, Any]) -> None:
    """What a drain waited for, and what the stop cut off all the same."""
    seen = result.get("drained")
    if seen is None:
        return
    if seen["unknown"]:
        output.words(f"drain: {seen['unknown']}, so the stop did not wait for requests", "yellow")
    elif seen["left"]:
        text = f"drain: {seen['left']} in flight after {seen['waited_s']:.0f} s, cut off by the stop"
        output.words(text, "yellow")
    else:
        output.words(f"drain: none in flight after {seen['waited_s']:.0f} s (at most {seen['most']} at once)")


def as_json(plan: Plan, host: str, round_trips: int) -> dict[str, object]:
    return {
        "kind": plan.kind,
        "unit": plan.unit,
        "host": host,
        "release": plan.release,
        "changes": [vars(change) for change in plan.changes],
        "outage": {
            "seconds": None if plan.outage.seconds == float("inf") else plan.outage.seconds,
            "source": plan.outage.source,
            "requests": plan.outage.requests,
            "drain_s": plan.outage.drain_s,
        },
        "warnings": plan.warnings,
        "round_trips": round_trips,
    }
