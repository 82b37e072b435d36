"""How long a service will be away, how sure that is, and whom it hits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DISK_MIB_S = 1024.0  # assumed where the host's disk could not be measured
WARM_UP_S = 60.0


@dataclass(frozen=True)
class Outage:
    """How long the service does not answer, and where the figure comes from. 0: it does not run now.

    `requests`: in flight as the plan is made, `{running, waiting}` or `{unknown: why}`; None when nothing stops.
    `drain_s`: how long the stop waits for them at most.
    """

    seconds: float
    source: str
    requests: Mapping[str, Any] | None = None
    drain_s: float = 0


def away(facts: Mapping[str, Any], *, same_model: bool = True) -> Outage:
    """From stop to the first healthy answer: this host's own last starts of the unit, else an estimate, labelled so.

    `same_model`: those starts loaded the weights that this one will.
    """
    service = facts["service"]
    if not service["unit"].get("processes"):
        return Outage(0, "the service does not run now")
    requests, starts = service.get("requests"), service["starts"]
    if starts and same_model:
        return Outage(max(starts), f"the slowest of its last {len(starts)} starts here", requests)
    load = service.get("load") or {"bytes": facts.get("model", {}).get("bytes", 0), "mib_s": None}
    speed, how = load["mib_s"], "as this host's disk reads"
    if not speed:
        speed, how = DISK_MIB_S, "assumed"
    words = f"{load['bytes'] / 2**30:.1f} GiB of weights at {speed / 1024:.1f} GiB/s, {how}"
    seconds = load["bytes"] / 2**20 / speed + WARM_UP_S
    return Outage(seconds, f"an estimate: {words}, and a minute to warm up", requests)


def open_ended(facts: Mapping[str, Any], source: str) -> Outage:
    """The service is stopped and this plan does not start it again."""
    service = facts["service"]
    running = bool(service["unit"].get("processes"))
    return Outage(float("inf"), source, service.get("requests") if running else None)


def in_flight(requests: Mapping[str, Any] | None) -> int | None:
    """How many there are; None when nobody knows or nothing stops."""
    if not requests or "unknown" in requests:
        return None
    return int(requests["running"]) + int(requests["waiting"])
