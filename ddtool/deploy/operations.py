"""Plans of the verbs that run an existing deployment: start, stop, restart, rollback, remove. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtool.deploy.outage import Outage, away, open_ended
from ddtool.deploy.plan import (
    UNITS,
    Change,
    Plan,
    current_release,
    expected,
    file_entry,
    folder,
    gate_drop_in,
    same_model,
    switch_steps,
)
from ddtool.errors import UsageError
from ddtool.profile.launch import RELEASE


def deployed(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The current release, or a UsageError that says how to get one."""
    current = current_release(facts)
    if current is None:
        raise UsageError(f"nothing is deployed as {name} on this host", hint="ddtool deploy PROFILE")
    return current


def gate_steps(release: Mapping[str, Any], *, keep: bool = False) -> list[dict[str, Any]]:
    """`keep`: what is started is what ran before, so an interruption is no reason to stop it."""
    return [
        {"step": "start", "gate": release["gate"], "stop_s": release["stop_s"], "keep": keep},
        {"step": "gate", "release": release["id"], "gate": release["gate"]},
    ]


def plan_start(name: str, facts: Mapping[str, Any]) -> Plan:
    release = deployed(name, facts)
    if facts["service"]["unit"].get("processes"):
        changes = [Change("keep", name, "already running")]
        return Plan("start", name, release["id"], changes, [], Outage(0, "nothing restarts"))
    changes = [Change("run", f"start {name}", f"release {release['id']}")]
    return Plan(
        "start", name, release["id"], changes, gate_steps(release), Outage(0, "the service does not run now")
    )


def plan_stop(name: str, facts: Mapping[str, Any]) -> Plan:
    release = deployed(name, facts)
    steps = [{"step": "stop", "stop_s": release["stop_s"], "restore": False}]
    changes = [
        Change("run", f"stop {name}", f"{len(facts['service']['unit'].get('processes', []))} processes")
    ]
    outage = open_ended(facts, "until it is started again")
    return Plan("stop", name, release["id"], changes, steps, outage)


def plan_restart(name: str, facts: Mapping[str, Any]) -> Plan:
    release = deployed(name, facts)
    # Undone because it fails, it stays down: it would fail again. Undone because it was interrupted, it runs again.
    stop = {"step": "stop", "stop_s": release["stop_s"], "restore": "interrupted"}
    steps = [stop, *gate_steps(release, keep=True)]
    changes = [Change("run", f"restart {name}", f"release {release['id']}")]
    return Plan("restart", name, release["id"], changes, steps, away(facts))


def plan_rollback(name: str, facts: Mapping[str, Any], *, to: str | None, state: str) -> Plan:
    """Back to the previous release, or to the one named. Its folder holds its unit, so nothing is built again."""
    current = deployed(name, facts)
    wanted = to or facts["service"]["deployed"].get("previous")
    target = next((item for item in facts["releases"] if item["id"] == wanted), None)
    if target is None or target["id"] == current["id"]:
        kept = ", ".join(item["id"] for item in facts["releases"])
        taken = facts["service"].get("adopted")
        original = "; the unit of before ddtool: ddtool remove --restore-unit" if taken else ""
        raise UsageError(
            f"there is no release to roll back to: {wanted or 'no previous one'}",
            hint=f"kept on the host: {kept}{original}",
        )
    steps = switch_steps(
        name,
        target["id"],
        target["unit_text"].replace(RELEASE, folder(state, name, target["id"])),
        target,
        facts["service"],
        state,
        profile_name=target["profile"],
        previous=current["id"],
    )
    changes = [
        Change("change", f"current release of {name}", f"{current['id']} → {target['id']}"),
        Change("run", f"restart {name}"),
    ]
    outage = away(facts, same_model=same_model(current, target))
    return Plan("rollback", name, target["id"], changes, steps, outage)


def plan_remove(name: str, facts: Mapping[str, Any], *, state: str, restore: dict[str, Any] | None) -> Plan:
    """Everything of ddtool off the host. `restore`: the step that puts patched files back first, if there are any."""
    release = deployed(name, facts)
    unit_path = f"{UNITS}/{name}.service"
    files = facts["service"]["files"]
    gone = [unit_path, gate_drop_in(name)]
    steps = [
        {"step": "stop", "stop_s": release["stop_s"], "restore": True},
        {"step": "enable", "on": False},
        *([restore] if restore else []),
        {
            "step": "files",
            "title": "remove the unit",
            "files": [
                file_entry(path, None, expect=expected(facts["service"], path))
                for path in gone
                if path in files
            ],
        },
        {"step": "purge"},
    ]
    changes = [
        Change("run", f"stop {name}"),
        *([Change("change", "patched files", "back to their baselines")] if restore else []),
        *(Change("remove", path) for path in gone if path in files),
        Change("remove", f"{state}/services/{name}", f"{len(facts['releases'])} releases, evidence, proofs"),
    ]
    return Plan("remove", name, release["id"], changes, steps, open_ended(facts, "the service goes away"))
