"""The mini service on a host, as its tests ask after it: at rest, active, and all as it was."""

from __future__ import annotations

from typing import Any

from support.remote import output, ssh, until
from support.tree import snapshot, without_times

from ddtool.sandbox import Sandbox

UNIT = "sglang-mini"
# What ddtool keeps for itself: no file that it manages, and all of it may grow.
OWN = tuple(
    f"/var/lib/ddtool/{name}"
    for name in ("txn", "evidence", "agent", "audit", "lock", "reserve", "crash", "bench")
)


def at_rest(host: Sandbox) -> None:
    """Wait until no executor runs, and nothing settles."""
    units = "systemctl list-units --all --plain --no-legend 'ddtool-*'"
    until(lambda: "ddtool-" not in output(host, units), timeout=60)


def active(host: Sandbox) -> str:
    return ssh(host, f"systemctl is-active {UNIT}").stdout.strip()


def look(host: Sandbox) -> dict[str, Any]:
    """Every file that is not ddtool's own, and whether the service runs and is to be started at boot."""
    tree = {
        path: about
        for path, about in without_times(snapshot(host)).items()
        if "__pycache__" not in path and not path.startswith(OWN)
    }
    return {**tree, "active": active(host), "enabled": output(host, f"systemctl is-enabled {UNIT} || true")}
