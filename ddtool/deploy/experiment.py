"""The experiment of `diag run`: its plan, and running it. Pure but for `run` and `attach`.

Its transaction is temporary: the host undoes all of it at the end, or wherever it breaks off. So what runs may be a
release that could never be deployed, because it crashes: that is the configuration one wants to look into.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.deploy import apply as transactions
from ddtool.deploy.apply import Event, OnEvent
from ddtool.deploy.outage import Outage, away
from ddtool.deploy.plan import (
    UNITS,
    Change,
    Plan,
    current_release,
    expected,
    file_entry,
    folder,
    gate_drop_in,
    next_id,
    previous_id,
    rendered,
    unit_on_disk,
)
from ddtool.deploy.release import Release, release_step, service_record
from ddtool.deploy.toggle import Request, compose_step, others_affected
from ddtool.deploy.toggle import changes as file_changes
from ddtool.errors import UsageError
from ddtool.profile import Profile
from ddtool.transport.agent import Agent

if TYPE_CHECKING:
    from ddtool.diagnostics.definition import Definition

ATTACH = "ddtool diag run --attach shows how it goes, and its outcome"
KIND = "diag run"
PATHS = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "text": "/generate",
    "input_ids": "/generate",
}
# Crashes that say nothing about the code: it ran out of something, or the machine failed.
MASKING = {
    *("host_oom_kill", "oom_load", "oom_kv_pool", "oom_graph_capture", "oom_runtime", "kv_exhausted"),
    *("gpu_unreachable", "gpu_hw_error"),
}


def drop_in(run: str, unit: str) -> str:
    """While the experiment runs: a crash is its result, and after a reboot nobody starts on its files."""
    return (
        f"[Unit]\nConditionPathExists={run}/{unit}/experiment\n"
        "[Service]\n# A crash is a result of the experiment, not a reason to restart.\nRestart=no\n"
    )


def requests(profile: Profile, file: str | None, load: int) -> list[dict[str, Any]]:
    """`load` requests `{path, body}`: the one in `file`, else the profile's health prompts in turn.

    Raises UsageError for a file that is not the body of a completion.
    """
    if file is not None:
        return [request_in(file)] * load
    prompts, health = profile.health.prompts, profile.health
    params = {"temperature": 0, "max_new_tokens": health.max_tokens}
    return [
        {
            "path": "/generate",
            "body": {"text": prompts[number % len(prompts)], "sampling_params": params},
        }
        for number in range(load)
    ]


def request_in(file: str) -> dict[str, Any]:
    try:
        body = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}", hint="--request takes the JSON body of one request") from error
    path = next((path for key, path in PATHS.items() if isinstance(body, dict) and key in body), None)
    if path is None:
        raise UsageError(
            f"{file} is not the body of a completion",
            hint="an object with text or input_ids (/generate), prompt (/v1/completions) or messages (/v1/chat/…)",
        )
    return {"path": path, "body": body}


def plan_experiment(
    profile: Profile,
    patch: Definition,
    release: Release,
    facts: Mapping[str, Any],
    preview: Mapping[str, Any],
    request: Request,
    *,
    asked: Sequence[Mapping[str, Any]],
    timeout_s: float,
    state: str,
    run: str,
    salt: str,
    now_unix: float,
) -> Plan:
    """`preview` is the host's answer to what `request` (the patch on) would do. Raises UsageError for a fix."""
    spec = spec_of(patch, asked, timeout_s)
    name = profile.service.unit
    current = current_release(facts)
    same = current is not None and is_current(name, release, current, facts, state)
    ident = str(current["id"]) if same and current else next_id(facts, release.digest)
    meta = current if same and current else release.meta
    begins = {"gate": meta["gate"], "stop_s": meta["stop_s"]}
    steps: list[dict[str, Any]] = [{"step": "safeguard"}]
    if not same:
        steps.append(release_step(release, ident, folder(state, name, ident), salt, now_unix))
    steps += [
        {"step": "stop", "stop_s": (current or meta)["stop_s"], "restore": True},
        {
            "step": "files",
            "title": "no restarts, and no start after a reboot",
            "files": [
                file_entry(gate_drop_in(name), drop_in(run, name)),
                *([] if same else unit_files(profile, release, facts, ident, state)),
            ],
        },
        *([] if preview["nothing_to_do"] else [compose_step(f"enable {patch.name}", request, preview)]),
        {"step": "start", **begins},
        {"step": "experiment", "release": ident, **begins, "spec": spec},
    ]
    return Plan(
        kind=KIND,
        unit=name,
        release=ident,
        changes=changes(name, preview, facts, ident, len(asked), timeout_s, same=same),
        steps=steps,
        outage=outage(facts, timeout_s),
        warnings=[*preview["notes"], *others_affected(name, preview)],
        unknown=tuple(preview["unknown"]),
    )


def spec_of(patch: Definition, asked: Sequence[Mapping[str, Any]], timeout_s: float) -> dict[str, Any]:
    """What the host's step is asked to find out."""
    if patch.hypothesis is None:
        raise UsageError(
            f"{patch.name} is a {patch.kind}: it reports nothing, so there is no experiment to make with it",
            hint=f"ddtool diag enable {patch.name} --restart",
        )
    return {
        "patch": patch.name,
        "sha": patch.sha,
        "hypothesis": patch.hypothesis.model_dump(),
        "requests": list(asked),
        "timeout_s": timeout_s,
    }


def is_current(
    name: str, release: Release, current: Mapping[str, Any], facts: Mapping[str, Any], state: str
) -> bool:
    """The profile's release is the one deployed, and its unit file is on disk."""
    text = rendered(release, folder(state, name, current["id"]))
    return current["digest"] == release.digest and unit_on_disk(name, facts["service"]) == text


def unit_files(
    profile: Profile,
    release: Release,
    facts: Mapping[str, Any],
    ident: str,
    state: str,
    *,
    first: bool = True,
) -> list[dict[str, Any]]:
    """Unit and names of a release that is current only for a while. `first`: they replace what `facts` saw, which has
    to be there still; after that they replace others of the same transaction."""
    name = profile.service.unit
    path = f"{UNITS}/{name}.service"
    text = rendered(release, folder(state, name, ident))
    record = service_record(name, profile.name, ident, previous_id(facts, ident))
    return [
        file_entry(path, text, expect=expected(facts["service"], path) if first else None),
        file_entry(f"{state}/services/{name}/service.json", json.dumps(record), mode=0o600),
    ]


def changes(
    name: str,
    preview: Mapping[str, Any],
    facts: Mapping[str, Any],
    ident: str,
    count: int,
    timeout_s: float,
    *,
    same: bool,
) -> list[Change]:
    rows = [] if same else [Change("create", f"release {ident}", "for this experiment only")]
    rows += file_changes(name, preview, restarts=False)
    what = "1 request" if count == 1 else f"{count} requests at once"
    rows.append(
        Change("run", f"start {name}", f"no restart, no rollback; then {what}, at most {timeout_s:.0f} s")
    )
    running = bool(facts["service"]["unit"].get("processes"))
    after = "start it again as it was" if running else "leave it stopped, as it was"
    rows.append(Change("run", "put every file back", after))
    return rows


def outage(facts: Mapping[str, Any], timeout_s: float) -> Outage:
    once = away(facts)
    if not once.seconds:  # it does not run
        return once
    source = f"two starts ({once.source}) and the experiment in between"
    return Outage(2 * once.seconds + timeout_s, source, once.requests)


def document(plan: Plan) -> dict[str, Any]:
    """The transaction for the host, with its id."""
    return transactions.temporary(plan.kind, plan.unit, plan.steps)


def run(agent: Agent, transaction: Mapping[str, Any], on_event: OnEvent) -> Event:
    """The result; `experiment` in it is the outcome. A lost link leaves it running to its end on the host."""
    return transactions.run(agent, transaction, on_event, ATTACH)


def attach(agent: Agent, on_event: OnEvent, ident: str | None = None) -> Event:
    """Follow an experiment from its beginning: the one named, the one that runs, or the last one."""
    return transactions.attach(agent, on_event, ident, ATTACH)


def with_verdict(seen: Event) -> Event:
    """The experiment in the light of its crash verdict: one that may hide the looked-for failure refutes nothing."""
    verdict = seen.get("verdict")
    if seen["outcome"] != "crashed elsewhere" or not verdict or verdict["category"] not in MASKING:
        return seen
    why = f"{verdict['cause']} What the diagnostic looks for may have come next."
    changed = {"outcome": "other failure first", "conclusion": "inconclusive", "hypothesis": None, "why": why}
    return {**seen, **changed}
