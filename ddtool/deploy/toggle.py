"""Plans that change files of the installed SGLang: diagnostics, restore, adopt. One restart for the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ddtool.deploy.operations import gate_steps
from ddtool.deploy.outage import Outage, away
from ddtool.deploy.plan import Change, Plan, current_release
from ddtool.deploy.session import operator

Request = dict[str, Any]


def toggle_request(
    venv: str,
    *,
    enable: Sequence[Mapping[str, Any]] = (),
    disable: Sequence[str] = (),
    why: str = "",
    force: bool = False,
) -> Request:
    """The host's request for patches on and off; `enable`: definitions as JSON."""
    return {
        "op": "toggle",
        "venv": venv,
        "who": operator(),
        "enable": list(enable),
        "disable": list(disable),
        "why": why,
        "force": force,
    }


def compose_step(title: str, request: Request, preview: Mapping[str, Any]) -> dict[str, Any]:
    """The host composes the files again and refuses if the outcome is not what the preview showed."""
    return {"step": "compose", "title": title, "request": request, "expect": preview["digest"]}


def plan_toggle(
    kind: str,
    unit: str,
    request: Request,
    preview: Mapping[str, Any],
    facts: Mapping[str, Any],
    *,
    restart: bool,
) -> Plan:
    """`preview` is the host's answer to `diag.preview`. Without `restart` running processes keep what they loaded."""
    release = current_release(facts)
    running = bool(facts["service"]["unit"].get("processes"))
    restarts = restart and release is not None and running
    steps: list[dict[str, Any]] = []
    if not preview["nothing_to_do"]:
        steps.append(compose_step(kind, request, preview))
    if restarts and release is not None:
        stop = {"step": "stop", "stop_s": release["stop_s"], "restore": True}
        steps = [stop, *steps, *gate_steps(release)]
    return Plan(
        kind=kind,
        unit=unit,
        release=release["id"] if release else "",
        changes=[*announced(request, preview), *changes(unit, preview, restarts=restarts)],
        steps=steps,
        outage=away(facts) if restarts else Outage(0, "nothing restarts"),
        warnings=warnings(unit, preview, facts, restarts=restarts, running=running),
        unknown=tuple(preview["unknown"]),
    )


def announced(request: Request, preview: Mapping[str, Any]) -> list[Change]:
    """The patches that come, each with its expiry."""
    if preview["nothing_to_do"]:
        return []
    rows = []
    for patch in request.get("enable", ()):
        days = patch.get("expires")
        until = (
            f"for {days} days: then status warns, and nothing reverts by itself" if days else "until disabled"
        )
        rows.append(Change("create", f"{patch['kind']} {patch['name']}", until))
    return rows


def changes(unit: str, preview: Mapping[str, Any], *, restarts: bool) -> list[Change]:
    kind: Literal["change", "keep"] = "keep" if preview["nothing_to_do"] else "change"
    rows = [Change(kind, name, diff=diff) for name, diff in preview["diffs"].items()]
    if not rows:  # only the ledger changes, as when a baseline is adopted
        rows = [Change(kind, row["file"], f"{row['before']} → {row['after']}") for row in preview["summary"]]
    if not rows:
        rows = [Change("keep", "files", "already as asked")]
    if restarts:
        rows.append(Change("run", f"restart {unit}", "so that every rank loads the files as they are then"))
    return rows


def warnings(
    unit: str, preview: Mapping[str, Any], facts: Mapping[str, Any], *, restarts: bool, running: bool
) -> list[str]:
    said = [*preview["notes"], *others_affected(unit, preview)]
    if running and not restarts and not preview["nothing_to_do"]:
        cost = away(facts)
        said.append(
            f"running processes keep the old code until a restart (about {cost.seconds:.0f} s, {cost.source}); "
            "--restart does one"
        )
    return said


def others_affected(unit: str, preview: Mapping[str, Any]) -> list[str]:
    others = [
        f"{name} ({'runs' if pids else 'stopped'})"
        for name, pids in preview["units"].items()
        if name.removesuffix(".service") != unit
    ]
    return [f"these use the same environment and are affected too: {', '.join(others)}"] if others else []
