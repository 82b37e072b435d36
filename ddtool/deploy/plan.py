"""From profile and facts to a plan: what changes, what it costs, and the transaction that does it. Pure."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ddtool.agent.names import GATE_DROP_IN_FILE, HEADER
from ddtool.deploy.outage import Outage, away
from ddtool.deploy.release import Release, release_step, service_record
from ddtool.errors import Drift
from ddtool.profile import Profile
from ddtool.profile.launch import RELEASE

if TYPE_CHECKING:
    from ddtool.deploy.wheelhouse import Wheel

UNITS = "/etc/systemd/system"
GATE_DROP_IN = """[Service]
# While the new release has not passed its gate, a crash is a result, not a reason to restart.
Restart=no
"""


@dataclass(frozen=True)
class Change:
    """One row of the plan. `diff` is unified and shown in full."""

    kind: Literal["create", "change", "remove", "keep", "run"]
    what: str
    detail: str = ""
    diff: str = ""


@dataclass(frozen=True)
class Plan:
    """`steps` is the transaction for the host (ddtool.agent.steps); empty when there is nothing to do.

    `uploads`: wheels that have to be there before it begins. `unknown`: functions that patches were not checked on,
    which the operator has to agree to.
    """

    kind: str
    unit: str
    release: str
    changes: list[Change]
    steps: list[dict[str, Any]]
    outage: Outage
    warnings: list[str] = field(default_factory=list)
    uploads: tuple[Wheel, ...] = ()
    unknown: tuple[Mapping[str, Any], ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        return not self.steps


def plan_deploy(
    profile: Profile,
    release: Release,
    facts: Mapping[str, Any],
    *,
    state: str,
    salt: str,
    now_unix: float,
    take_over: bool = False,
) -> Plan:
    """Raises Drift when a unit of that name is not ours, or ours was edited by hand."""
    name = profile.service.unit
    service = facts["service"]
    current = current_release(facts)
    check_owner(name, service, current, state, take_over=take_over)
    ident, steps = written(release, facts, name, state, salt, now_unix)
    unit_text = rendered(release, folder(state, name, ident))
    running = service["unit"].get("active") == "active" and not gate_drop_in_present(name, service)
    if not steps and running and unit_on_disk(name, service) == unit_text:
        changes = [Change("keep", f"release {ident}", "running, nothing differs")]
        return Plan("deploy", name, ident, changes, [], Outage(0, "nothing restarts"))
    first = current is None
    steps += switch_steps(
        name,
        ident,
        unit_text,
        release.meta,
        service,
        state,
        profile_name=profile.name,
        previous=previous_id(facts, ident),
    )
    return Plan(
        kind="deploy",
        unit=name,
        release=ident,
        changes=deploy_changes(profile, release, facts, ident, unit_text, first=first),
        steps=steps,
        outage=away(facts, same_model=same_model(current, release.meta)),
        warnings=drop_in_warnings(name, service),
    )


def written(
    release: Release, facts: Mapping[str, Any], name: str, state: str, salt: str, now_unix: float
) -> tuple[str, list[dict[str, Any]]]:
    """The release's id, and the step that writes it unless it is the host's current one."""
    current = current_release(facts)
    if current is not None and current["digest"] == release.digest:
        return str(current["id"]), []
    ident = next_id(facts, release.digest)
    patches = facts["diagnostics"].get("patches", [])
    return ident, [release_step(release, ident, folder(state, name, ident), salt, now_unix, patches)]


def switch_steps(
    name: str,
    ident: str,
    unit_text: str,
    meta: Mapping[str, Any],
    service: Mapping[str, Any],
    state: str,
    *,
    profile_name: str,
    previous: str | None,
) -> list[dict[str, Any]]:
    """Stop, put unit and names in place, start, gate, promote: shared by deploy and rollback."""
    unit_path = f"{UNITS}/{name}.service"
    record = service_record(name, profile_name, ident, previous)
    return [
        {"step": "stop", "stop_s": meta["stop_s"], "restore": True},
        {
            "step": "files",
            "title": "install the unit, without restarts until the gate is passed",
            "files": [
                file_entry(unit_path, unit_text, expect=expected(service, unit_path)),
                file_entry(gate_drop_in(name), GATE_DROP_IN),
                file_entry(f"{state}/services/{name}/service.json", json.dumps(record), mode=0o600),
            ],
        },
        {"step": "start", "gate": meta["gate"], "stop_s": meta["stop_s"]},
        {"step": "gate", "release": ident, "gate": meta["gate"]},
        {
            "step": "files",
            "title": "allow restarts after a crash",
            "files": [file_entry(gate_drop_in(name), None)],
        },
        {"step": "enable", "on": True},
    ]


def file_entry(
    path: str, text: str | None, *, mode: int = 0o644, expect: str | None = None
) -> dict[str, Any]:
    content = None if text is None else base64.b64encode(text.encode()).decode()
    return {"path": path, "content": content, "mode": mode, "expect": expect}


def expected(service: Mapping[str, Any], path: str) -> str:
    """What the file must still be when the transaction swaps it: as the facts saw its bytes."""
    return str(service.get("sha256", {}).get(path, "absent"))


def folder(state: str, name: str, ident: str) -> str:
    return f"{state}/services/{name}/releases/{ident}"


def gate_drop_in(name: str) -> str:
    return f"{UNITS}/{name}.service.d/{GATE_DROP_IN_FILE}"


def gate_drop_in_present(name: str, service: Mapping[str, Any]) -> bool:
    return gate_drop_in(name) in service["files"]


def rendered(release: Release, release_folder: str) -> str:
    return release.unit_text.replace(RELEASE, release_folder)


def unit_on_disk(name: str, service: Mapping[str, Any]) -> str | None:
    text: str | None = service["files"].get(f"{UNITS}/{name}.service")
    return text


def current_release(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    return next((item for item in facts["releases"] if item["role"] == "current"), None)


def previous_id(facts: Mapping[str, Any], ident: str) -> str | None:
    """What `rollback` goes back to once `ident` is current."""
    current = current_release(facts)
    if current is None:
        return None
    if current["id"] != ident:
        return str(current["id"])
    return next((item["id"] for item in facts["releases"] if item["role"] == "previous"), None)


def next_id(facts: Mapping[str, Any], digest: str) -> str:
    """`0007-1a2b3c4d`: a number that only grows, and the digest's beginning."""
    numbers = [int(item["id"].split("-")[0]) for item in facts["releases"]]
    return f"{max(numbers, default=0) + 1:04d}-{digest[:8]}"


def check_owner(
    name: str, service: Mapping[str, Any], current: Mapping[str, Any] | None, state: str, *, take_over: bool
) -> None:
    if not service["unit"].get("exists") or take_over:
        return
    path = service["unit"]["path"]
    text = service["files"].get(path, "")
    if not text.startswith(HEADER):
        raise Drift(
            f"the host has a unit {name} that is not ddtool's: {path}",
            why=f"it is {service['unit']['active']} and starts:\n{exec_lines(text)}",
            hint="choose another name with --set service.unit=NAME, or replace it with --take-over",
        )
    if current is None or "unit_sha256" not in current:
        return
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != current["unit_sha256"]:
        raise Drift(
            f"{path} was edited by hand since ddtool wrote it",
            hint="move the edit to the profile or to a drop-in, and replace the file with --take-over",
        )


def exec_lines(text: str) -> str:
    return (
        "\n".join(f"  {line}" for line in text.splitlines() if line.startswith("Exec")) or "  (no Exec line)"
    )


def drop_in_warnings(name: str, service: Mapping[str, Any]) -> list[str]:
    foreign = [path for path in service["files"] if ".service.d/" in path and path != gate_drop_in(name)]
    return [f"a drop-in that is not ddtool's changes this unit: {path}" for path in foreign]


def deploy_changes(
    profile: Profile, release: Release, facts: Mapping[str, Any], ident: str, unit_text: str, *, first: bool
) -> list[Change]:
    current = current_release(facts)
    unit_path = f"{UNITS}/{profile.service.unit}.service"
    before = facts["service"]["files"].get(unit_path)
    changes = []
    if current is None or current["id"] != ident:
        changes.append(Change("create", f"release {ident}", f"{len(release.files)} files"))
    if before != unit_text:
        kind: Literal["create", "change"] = "create" if before is None else "change"
        changes.append(Change(kind, unit_path, diff=unified(before or "", unit_text, unit_path)))
    kind_of: Literal["create", "change"] = "create" if current is None else "change"
    for title in ("config", "argv"):
        old, new = (current or {}).get(title), release.meta[title]
        if old != new:
            changes.append(Change(kind_of, title, diff=unified(listed(old), listed(new), title)))
    for title in ("wheel", "engine", "probe"):
        old, new = (current or {}).get(title), release.meta[title]
        if old != new:
            changes.append(Change(kind_of, title, str(new) if old is None else f"{old} → {new}"))
    verb = "start" if first or not facts["service"]["unit"].get("processes") else "restart"
    changes.append(
        Change("run", f"{verb} {profile.service.unit}", "gate: real completions before it counts as deployed")
    )
    return changes


def listed(value: Any) -> str:
    """A mapping, list or text as lines, for a diff that shows single keys."""
    if isinstance(value, Mapping):
        return "".join(f"{key}: {item}\n" for key, item in value.items())
    if isinstance(value, list):
        return "".join(f"{item}\n" for item in value)
    return f"{value}\n" if value else ""


def unified(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"{name} (now)",
        f"{name} (planned)",
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def same_model(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    """Two releases load the same weights, so the starts of one tell how long the other takes."""
    keys = ("model-path", "speculative-draft-model-path")
    return before is not None and all(before["config"].get(key) == after["config"].get(key) for key in keys)
