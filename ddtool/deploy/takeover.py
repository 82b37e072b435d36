"""Plans of a takeover: a hand-made unit becomes ddtool's without an outage, and goes back to what it was. Pure.

After a takeover the unit on disk is ddtool's, and the process of before goes on until the next restart. A restart by
ddtool first puts the original unit back on disk: when the release fails its gate, that is what is started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtool.deploy.operations import deployed
from ddtool.deploy.outage import Outage, away, open_ended
from ddtool.deploy.plan import (
    UNITS,
    Change,
    Plan,
    deploy_changes,
    drop_in_warnings,
    expected,
    file_entry,
    folder,
    gate_drop_in,
    plan_deploy,
    previous_id,
    rendered,
    switch_steps,
    written,
)
from ddtool.deploy.release import Release
from ddtool.errors import PreflightError, UsageError
from ddtool.profile import Profile
from ddtool.profile.launch import RELEASE

Step = dict[str, Any]
RUNS_ON = Outage(0, "the running process goes on; the next restart runs the release")


def is_foreign(facts: Mapping[str, Any]) -> bool:
    """Whether the unit of this name is somebody else's."""
    return facts["service"].get("foreign") is not None


def waits(facts: Mapping[str, Any]) -> bool:
    """Whether the process of before the takeover still runs."""
    service = facts["service"]
    return bool(service.get("adopted") and service["unit"].get("processes") and not service.get("runs"))


def refuse_while_waiting(facts: Mapping[str, Any], verb: str) -> None:
    """For verbs that would start the release together with something else."""
    if waits(facts):
        raise PreflightError(
            f"the process of before the takeover still runs, so {verb} would start the release for the first time",
            hint="ddtool restart",
        )


def plan_take_over(
    profile: Profile,
    release: Release,
    facts: Mapping[str, Any],
    *,
    state: str,
    salt: str,
    now_unix: float,
    restart: bool,
) -> Plan:
    """Somebody's unit of this name becomes ddtool's. A running one goes on, unless `restart`."""
    name, service = profile.service.unit, facts["service"]
    obstacle = service["foreign"].get("obstacle")
    if obstacle:
        raise PreflightError(obstacle["message"], why="nothing was touched", hint=obstacle["hint"])
    ident, write = written(release, facts, name, state, salt, now_unix)
    running = bool(service["unit"].get("processes"))
    about = {"unix": round(now_unix, 3), "active": running, "enabled": service["unit"].get("enabled")}
    switch = _switch(name, profile.name, release.meta, release.unit_text, facts, state, ident)
    take = _adopting(switch[1], service["foreign"]["digest"], about)
    warnings = [
        warning
        for warning in drop_in_warnings(name, service)
        if not any(path in warning for path in service["foreign"]["paths"])
    ]
    kept = Change(
        "keep", "originals", "with `remove --restore-unit` back: " + ", ".join(service["foreign"]["paths"])
    )
    changes = deploy_changes(
        profile, release, facts, ident, rendered(release, folder(state, name, ident)), first=True
    )
    if running and not restart:
        take["files"] = [item for item in take["files"] if item["path"] != gate_drop_in(name)]
        changes = [
            *changes[:-1],
            kept,
            Change("keep", name, "goes on as it runs; `ddtool restart` runs the release"),
        ]
        return Plan("deploy", name, ident, changes, [*write, take], RUNS_ON, warnings)
    steps = [*write, switch[0], take, *switch[2:]]
    outage = away(facts, same_model=False)
    return Plan("deploy", name, ident, [*changes[:-1], kept, changes[-1]], steps, outage, warnings)


def plan_waiting(
    profile: Profile,
    release: Release,
    facts: Mapping[str, Any],
    *,
    state: str,
    salt: str,
    now_unix: float,
    stay: bool,
    restart: bool,
) -> Plan:
    """A deploy while the process of before the takeover still runs. `stay`: another release, and still no outage."""
    name = profile.service.unit
    plan = plan_deploy(profile, release, facts, state=state, salt=salt, now_unix=now_unix)
    if plan.nothing_to_do:
        if restart:
            return plan_first_restart("deploy", name, facts, state=state)
        changes = [Change("keep", f"release {plan.release}", "is installed; `ddtool restart` runs it")]
        return Plan("deploy", name, plan.release, changes, [], RUNS_ON)
    ident, write = written(release, facts, name, state, salt, now_unix)
    switch = _switch(name, profile.name, release.meta, release.unit_text, facts, state, ident)
    if not stay:
        steps = [*write, *_with_way_back(name, facts, switch, state)]
        return Plan("deploy", name, ident, plan.changes, steps, away(facts, same_model=False), plan.warnings)
    files = {
        **switch[1],
        "title": "install the unit",
        "files": [item for item in switch[1]["files"] if item["path"] != gate_drop_in(name)],
    }
    changes = [
        *plan.changes[:-1],
        Change("keep", name, "goes on as it runs; `ddtool restart` runs the release"),
    ]
    return Plan("deploy", name, ident, changes, [*write, files], RUNS_ON, plan.warnings)


def plan_first_restart(kind: str, name: str, facts: Mapping[str, Any], *, state: str) -> Plan:
    """The restart that ends a takeover: the release runs for the first time, and passes its gate or makes way."""
    release = deployed(name, facts)
    switch = _switch(name, release["profile"], release, release["unit_text"], facts, state, release["id"])
    changes = [
        Change(
            "run",
            f"restart {name}",
            f"release {release['id']} in place of the process of before the takeover",
        ),
        Change("keep", "the original unit", "runs again if the release does not pass its gate"),
    ]
    steps = _with_way_back(name, facts, switch, state)
    return Plan(kind, name, release["id"], changes, steps, away(facts, same_model=False))


def plan_give_back(name: str, facts: Mapping[str, Any], *, state: str, restore: Step | None) -> Plan:
    """Everything of ddtool off the host, and the unit as its owner had made it. `restore` as in plan_remove."""
    release, service = deployed(name, facts), facts["service"]
    adopted = service.get("adopted")
    if not adopted:
        raise UsageError(f"{name} was not taken over: there is no unit to restore", hint="ddtool remove")
    going = [path for path in (f"{UNITS}/{name}.service", gate_drop_in(name)) if path in service["files"]]
    back = {
        "step": "give-back",
        "title": "put the original unit back",
        "files": [file_entry(path, None, expect=expected(service, path)) for path in going],
    }
    patched = [restore] if restore else []
    changes = [
        *([Change("change", "patched files", "back to their baselines")] if restore else []),
        *(Change("change", path, "as it was when ddtool took it over") for path in adopted["paths"]),
        Change("remove", f"{state}/services/{name}", f"{len(facts['releases'])} releases, evidence, proofs"),
    ]
    if waits(facts):
        kept = Change("keep", name, "goes on: it is still the process of before the takeover")
        outage = Outage(0, "the running process goes on")
        return Plan(
            "remove", name, release["id"], [*changes, kept], [*patched, back, {"step": "purge"}], outage
        )
    stop = {"step": "stop", "stop_s": release["stop_s"], "restore": True}
    again = [{"step": "start-original", "stop_s": release["stop_s"]}] if adopted["active"] else []
    words = "with its original unit" if again else "it did not run when it was taken over"
    changes = [
        Change("run", f"stop {name}"),
        *changes,
        Change("run", f"start {name}" if again else name, words),
    ]
    outage = (
        away(facts) if again else open_ended(facts, "the original unit did not run when it was taken over")
    )
    return Plan(
        "remove", name, release["id"], changes, [stop, *patched, back, *again, {"step": "purge"}], outage
    )


def refuse_to_lose(name: str, facts: Mapping[str, Any]) -> None:
    """`remove` of a unit that was taken over: which of the two is meant has to be said."""
    adopted = facts["service"].get("adopted")
    if adopted:
        raise UsageError(
            f"{name} was taken over from a unit made by hand; ddtool keeps it: {', '.join(adopted['paths'])}",
            hint="`ddtool remove --restore-unit` puts it back, `--no-restore-unit` deletes it for good",
        )


def _switch(
    name: str,
    profile_name: str,
    meta: Mapping[str, Any],
    unit_text: str,
    facts: Mapping[str, Any],
    state: str,
    ident: str,
) -> list[Step]:
    """stop, files, start, gate, files, enable."""
    text = unit_text.replace(RELEASE, folder(state, name, ident))
    previous = previous_id(facts, ident)
    return switch_steps(
        name, ident, text, meta, facts["service"], state, profile_name=profile_name, previous=previous
    )


def _adopting(files: Step, digest: str, about: Mapping[str, Any]) -> Step:
    """The step that installs ddtool's unit, as one that keeps what it replaces; the host checks that by `digest`."""
    entries = [{**item, "expect": None} for item in files["files"]]
    return {
        "step": "adopt",
        "title": "keep the original unit and install ddtool's",
        "files": entries,
        "expect": digest,
        "about": dict(about),
    }


def _with_way_back(name: str, facts: Mapping[str, Any], switch: list[Step], state: str) -> list[Step]:
    """The original unit on disk again before its process is stopped: undoing the stop starts that one."""
    service = facts["service"]
    adopted = service["adopted"]
    about = {key: adopted[key] for key in ("unix", "active", "enabled")}
    going = [f"{UNITS}/{name}.service", f"{state}/services/{name}/service.json"]
    back = {
        "step": "give-back",
        "title": "put the original unit back, in case that the release fails",
        "files": [file_entry(path, None) for path in going],
    }
    return [back, switch[0], _adopting(switch[1], adopted["digest"], about), *switch[2:]]
