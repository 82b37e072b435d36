"""`--drain SECONDS`: before a plan's stop, let the requests in flight come to their end. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddtool.deploy.outage import in_flight
from ddtool.deploy.plan import Change, Plan


def drained(plan: Plan, seconds: float) -> Plan:
    """The plan with a wait of at most `seconds` before its first stop; as it is when nothing that runs is stopped.

    The host knows where the running release answers; where there is none, as in a takeover, it asks where the new one
    will.
    """
    steps = [step["step"] for step in plan.steps]
    if not seconds or "stop" not in steps or plan.outage.requests is None:
        return plan
    # give-back takes the running release's address off the disk
    at = min(steps.index(kind) for kind in ("stop", "give-back") if kind in steps)
    gate = next((step["gate"] for step in plan.steps if step["step"] == "start"), None)
    step: dict[str, Any] = {"step": "drain", "seconds": seconds, "gate": gate}
    now = in_flight(plan.outage.requests)
    count = "an unknown number" if now is None else str(now)
    words = f"at most {seconds:.0f} s, until no request is in flight ({count} now); new ones still come in"
    first_run = next(number for number, change in enumerate(plan.changes) if change.kind == "run")
    wait = Change("run", "wait before the stop", words)
    return replace(
        plan,
        outage=replace(plan.outage, drain_s=seconds),
        steps=[*plan.steps[:at], step, *plan.steps[at:]],
        changes=[*plan.changes[:first_run], wait, *plan.changes[first_run:]],
    )
