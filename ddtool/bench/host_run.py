"""A run on the host, from looking at it to watching it: what `bench` does over an agent."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.bench import arms as all_arms
from ddtool.bench import asked, fingerprint, objective, passes, store, taint
from ddtool.bench import run as bench_run
from ddtool.bench.arms import Arm
from ddtool.bench.on_host import Built, Measurement
from ddtool.bench.passes import Design
from ddtool.bench.store import Folder
from ddtool.bench.workloads import Workload
from ddtool.deploy import apply as transactions
from ddtool.deploy import installs, preflight, takeover
from ddtool.deploy.apply import Event, OnEvent
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.measured import on_host
from ddtool.deploy.plan import Plan, check_owner, current_release, next_id
from ddtool.deploy.release import Release
from ddtool.errors import UsageError
from ddtool.profile import Profile
from ddtool.profile.validate import require_valid
from ddtool.transport.agent import Agent

ATTACH = "ddtool bench --attach shows how it goes, and its result"
MOST_BYTES = 48 << 20  # of a plan: it travels in one frame


def prepare(
    deployment: Deployment,
    design: Design,
    workloads: Mapping[str, Workload],
    *,
    typed: Sequence[str],
    how: Mapping[str, Any],
    resumed: Folder | None = None,
) -> Measurement:
    """Everything of a run before anybody is asked; the host is only read. `typed`, `how`: of `run.begin`.

    Raises what `build` raises, and UsageError when a resumed run began under other conditions.
    """
    profile, facts = deployment.profile, deployment.facts
    wanted = [all_arms.parse(name, profile) for name in design.arms]
    built, remarks = build(deployment, wanted)
    releases = {name: one.release for name, one in built.items()}
    prints = fingerprint.of_host(facts, releases, design, workloads)
    there = 0  # bytes of samples on the host
    if resumed is None:
        about = bench_run.begin(
            design,
            profile=profile.name,
            host=deployment.host,
            workloads=typed,
            fingerprint=prints,
            taints=[*taint.of_facts(facts), *taint.of_profile(profile)],
            warnings=[*remarks, *warnings_of(profile, wanted, design, workloads)],
            wanted=profile.objective,
            how=how,
            dtype=dtype_of(on_host(profile, facts)),
        )
    else:
        bench_run.check_same(resumed, prints)
        there = fetch(deployment.agent, resumed)
        about = resumed.run
    done, attempts = (resumed.done(), resumed.attempts()) if resumed else ({}, {})
    left = passes.without(passes.visits(design), done)
    if resumed and left and there < resumed.size:
        raise UsageError(
            f"{deployment.host} no longer has what it measured of {resumed.path.name}: nothing can be added to it",
            why="`ddtool remove` takes it away, and so do 20 newer runs",
            hint="begin anew without --resume; what was measured stays here",
        )
    return Measurement(
        profile=profile,
        design=design,
        workloads=workloads,
        built=built,
        facts=facts,
        about=about,
        left=left,
        attempts=attempts,
        state=deployment.state,
        run=deployment.agent.host.run,
        salt=deployment.salt,
        warnings=about["warnings"],
    )


def warnings_of(
    profile: Profile, wanted: Sequence[Arm], design: Design, workloads: Mapping[str, Workload]
) -> list[str]:
    unjudged = objective.not_judged(
        profile.objective, design.own, [cell.concurrency for cell in design.cells]
    )
    return [
        *all_arms.forced_differences(wanted, profile),
        *asked.notes(profile, design, workloads),
        *([unjudged] if unjudged else []),
    ]


def dtype_of(profile: Profile) -> str | None:
    """What the target's logits are in, as far as profile and checkpoint say."""
    given, shape = profile.flag("dtype", "auto"), profile.model.shape
    return str(given) if given != "auto" else (shape.dtype if shape else None)


def build(
    deployment: Deployment, wanted: Sequence[Arm], after: int = 0
) -> tuple[dict[str, Built], list[str]]:
    """Every arm's release by name, and what validation remarks. `after`: how many arms were built before these.

    Raises UsageError for an arm that the profile cannot have, ProfileError for one that cannot work, PreflightError
    when the host cannot run it, Drift when the unit is somebody else's.
    """
    takeover.refuse_while_waiting(deployment.facts, "bench")
    installs.require_in_force(deployment.wanted, deployment.facts)
    current = current_release(deployment.facts)
    check_owner(deployment.unit, deployment.facts["service"], current, deployment.state, take_over=False)
    built: dict[str, Built] = {}
    remarks: list[str] = []
    for arm in wanted:
        profile = all_arms.profile_of(arm, deployment.target)
        remarks += [f"{arm.name}: {finding}" for finding in checked(profile, deployment)]
        release = deployment.build_release(profile)
        if present := current is not None and current["digest"] == release.digest:
            ident = current["id"]
        else:
            ident = numbered(deployment.facts, release, after + len(built))
        built[arm.name] = Built(arm, profile, release, ident, present)
    return built, remarks


def checked(profile: Profile, deployment: Deployment) -> list[str]:
    """Warnings of a profile that the host can run. Notes are about deploying it, which is not what is asked here."""
    facts = deployment.target_facts
    findings = require_valid(on_host(profile, facts))
    what = f"{profile.name} as {profile.speculative.algorithm}"
    preflight.require(preflight.check_all(profile, facts, time.time()), deployment.host, what)
    return [str(finding) for finding in findings if finding.level == "warn"]


def numbered(facts: Mapping[str, Any], release: Release, further: int) -> str:
    """An id after all that the host has, and after `further` others of this run."""
    number, _, digest = next_id(facts, release.digest).partition("-")
    return f"{int(number) + further:04d}-{digest}"


def document(made: Plan) -> dict[str, Any]:
    """The transaction for the host, with its id. Raises UsageError when it would not fit into one frame."""
    whole = transactions.temporary(made.kind, made.unit, made.steps)
    size = len(json.dumps(whole))
    if size > MOST_BYTES:
        raise UsageError(
            f"this run's plan is {size >> 20} MiB, and at most {MOST_BYTES >> 20} are sent to a host",
            hint="fewer or shorter prompts (--prompts), or one workload at a time",
        )
    return whole


def run(agent: Agent, transaction: Mapping[str, Any], on_event: OnEvent, hint: str = ATTACH) -> Event:
    """The transaction's result. A lost link leaves it running to its end on the host; `hint`: what to type then."""
    return transactions.run(agent, transaction, on_event, hint)


def attach(agent: Agent, on_event: OnEvent, ident: str | None = None, hint: str = ATTACH) -> Event:
    """Follow a benchmark from its beginning: the transaction named, the one that runs, or the last one."""
    return transactions.attach(agent, on_event, ident, hint)


def fetch(agent: Agent, into: Folder) -> int:
    """Copy what the host has of the run's samples and this machine has not. Returns how many bytes the host has."""
    rows = agent.call("bench.list")
    there = next((int(row["bytes"]) for row in rows if row["run"] == into.path.name), 0)
    while into.size < there:
        at = into.size
        data, _ = piece(agent, into.path.name, at)
        into.append_copy(data, at)
    return there


def piece(agent: Agent, run: str, offset: int, file: str = "samples.jsonl") -> tuple[bytes, int]:
    """What a file of a run on the host has from a byte on, as much as one reply takes; and the file's size now."""
    answer = agent.call("bench.fetch", run=run, offset=offset, file=file)
    return zlib.decompress(base64.b64decode(answer["data"])), int(answer["size"])


def folder_of(agent: Agent, name: str) -> Folder:
    """The folder of a run that the host made: the one here, or a new one with the host's run.json."""
    if (store.root() / name / "run.json").exists():
        return Folder(store.root() / name)
    about = next((row["about"] for row in agent.call("bench.list") if row["run"] == name), None)
    if not about:
        raise UsageError(f"neither this machine nor the host has a run {name}", hint="ddtool bench list")
    return Folder.create(about)
