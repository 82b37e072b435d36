"""The plan of a run on the host: every visit is a start of its arm's server, all in one temporary transaction, so that
the host puts the deployed service back at the end, or wherever it breaks off. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddtool.bench import passes
from ddtool.bench.arms import Arm
from ddtool.bench.passes import Design, Visit
from ddtool.bench.workloads import Workload
from ddtool.deploy import experiment
from ddtool.deploy.outage import Outage, away
from ddtool.deploy.plan import Change, Plan, current_release, file_entry, folder, gate_drop_in
from ddtool.deploy.release import Release, release_step
from ddtool.profile import Profile

KIND = "bench"
GIVEN = ("text", "messages", "input_ids")  # of a body: the prompt
TOK_S = 100.0  # of one request, where nothing says how fast the service is; the plan calls it assumed


@dataclass(frozen=True)
class Built:
    """An arm on this host: the profile that its server runs, its release, and the release's id there."""

    arm: Arm
    profile: Profile
    release: Release
    ident: str
    present: bool  # the release is the one deployed now


@dataclass(frozen=True)
class Measurement:
    """What a plan is made of. `about`: run.json; `left`: the visits to make; `attempts`: of passes begun before.

    `state` and `run`: the host's folders; what lies in the second one, a reboot forgets. `speeds`: tok/s of
    one request by cell, where an earlier run has measured them.
    """

    profile: Profile
    design: Design
    workloads: Mapping[str, Workload]
    built: Mapping[str, Built]
    facts: Mapping[str, Any]
    about: Mapping[str, Any]
    left: Sequence[Visit]
    attempts: Mapping[str, int]
    state: str
    run: str
    salt: str
    warnings: Sequence[str] = ()
    speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return self.profile.service.unit

    @property
    def used(self) -> list[Built]:
        """The arms that still have to be measured."""
        return [one for one in self.built.values() if any(visit.arm == one.arm.name for visit in self.left)]


def plan(this: Measurement, now_unix: float) -> Plan:
    steps = opening(this, this.used, now_unix)
    for number, visit in enumerate(this.left):
        steps += visit_steps(this, visit, begins=number == 0)
    return Plan(
        kind=KIND,
        unit=this.unit,
        release=this.built[this.left[0].arm].ident,
        changes=changes(this),
        steps=steps,
        outage=outage(this),
        warnings=list(this.warnings),
    )


def opening(this: Measurement, used: Sequence[Built], now_unix: float) -> list[dict[str, Any]]:
    """Write the releases that the host lacks, and stop the service until all of this is undone."""
    releases = [
        release_step(one.release, one.ident, folder(this.state, this.unit, one.ident), this.salt, now_unix)
        for one in used
        if not one.present
    ]
    stop_s = (current_release(this.facts) or used[0].release.meta)["stop_s"]
    return [{"step": "safeguard"}, *releases, {"step": "stop", "stop_s": stop_s, "restore": True}]


def visit_steps(this: Measurement, visit: Visit, *, begins: bool) -> list[dict[str, Any]]:
    """Start one arm's server, measure, stop it."""
    one = this.built[visit.arm]
    specs = passes.specs(visit.passes, visit_design(this, visit), this.workloads, this.attempts)
    prompts, specs = packed(specs)
    bench = {"run": this.about["run"], "about": dict(this.about), "passes": specs, "prompts": prompts}
    title = f"{visit.arm}, visit {visit.number + 1} of {this.design.visits}"
    return server_steps(this, one, title, {"step": "bench", **bench}, begins=begins)


def visit_design(this: Measurement, visit: Visit) -> Design:
    return replace(this.design, warmup=this.design.warmup and visit.warm_up)


def server_steps(
    this: Measurement, one: Built, title: str, work: Mapping[str, Any], *, begins: bool
) -> list[dict[str, Any]]:
    """An arm's server around one step. The first of them also sees to it that nothing else starts it meanwhile."""
    meta = one.release.meta
    files = experiment.unit_files(this.profile, one.release, this.facts, one.ident, this.state, first=begins)
    if begins:
        files.append(file_entry(gate_drop_in(this.unit), experiment.drop_in(this.run, this.unit)))
    return [
        {"step": "files", "title": f"make {this.unit} run {title}", "files": files},
        {"step": "start", "gate": meta["gate"], "stop_s": meta["stop_s"]},
        {**work, "release": one.ident, "gate": meta["gate"]},
        {"step": "stop", "stop_s": meta["stop_s"], "restore": False},
    ]


def packed(specs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Prompts by hash, and the passes without them: a plan holds each prompt once, however many passes ask it."""
    prompts: dict[str, Any] = {}
    found = []
    for spec in specs:
        lean = dict(spec)
        for name in ("requests", "warmup"):
            rows = []
            for item in spec[name]:
                given = {key: value for key, value in item["body"].items() if key in GIVEN}
                prompts[item["prompt"]] = given
                rest = {key: value for key, value in item["body"].items() if key not in GIVEN}
                rows.append({**item, "body": rest})
            lean[name] = rows
        found.append(lean)
    return prompts, found


def changes(this: Measurement) -> list[Change]:
    """What a person reads before saying yes."""
    design, left = this.design, this.left
    rows = [
        Change("create", f"release {one.ident}", f"{one.arm.name}, for this run only")
        for one in this.used
        if not one.present
    ]
    order = " ".join(visit.arm for visit in left)
    rows.append(Change("run", f"start {this.unit} {len(left)} times", f"in this order: {order}"))
    count = sum(len(visit.passes) for visit in left)
    cells = ", ".join(cell.key for cell in design.cells)
    cache = "prefix cache emptied before each" if design.flush else "prefix cache left warm"
    rows.append(Change("run", f"measure {count} passes", f"{design.repeats} a visit of {cells}; {cache}"))
    if design.asks_plain:
        rows.append(
            Change("run", "start plain once more", "if answers differ from its own: were they near ties?")
        )
    running = bool(this.facts["service"]["unit"].get("processes"))
    after = "start it again as it was" if running else "leave it stopped, as it was"
    rows.append(Change("run", "put every file back", after))
    return rows


def outage(this: Measurement) -> Outage:
    """All the starts, the one that puts the service back, and the passes in between."""
    once = away(this.facts)
    if not once.seconds:  # it does not run
        return once
    seconds, how = measuring_s(this)
    starts = f"{len(this.left)} start{'s' if len(this.left) > 1 else ''} and one to put it back"
    words = f"{starts}, {once.seconds:.0f} s each ({once.source}), and {how}"
    return Outage((len(this.left) + 1) * once.seconds + seconds, words, once.requests)


def measuring_s(this: Measurement) -> tuple[float, str]:
    """How long the passes and their warm-ups take, roughly, and the words for it."""
    wanted = this.profile.objective
    guess, whose = (wanted.tok_s, "the objective's") if wanted else (TOK_S, "an assumed")
    keys = {one.cell for visit in this.left for one in visit.passes}
    speed = {key: this.speeds.get(key, guess) for key in keys}
    total, count, warmed = 0.0, 0, False
    for visit in this.left:
        if visit_design(this, visit).warmup:
            warmed = True
            for key in {one.cell for one in visit.passes}:
                total += passes.warm_up_tokens(this.design.cell(key)) / speed[key]
        for one in visit.passes:
            cell = this.design.cell(one.cell)
            in_turn = -(-cell.prompts // (cell.concurrency or cell.prompts))
            arriving = cell.prompts / cell.rate if cell.rate else 0.0
            total += in_turn * cell.max_tokens / speed[cell.key] + arriving
            count += 1
    lasting = f"{total:.0f} s" if total < 90 else f"{total / 60:.0f} min"
    what = f"{count} passes and their warm-ups" if warmed else f"{count} passes"
    pace = "as fast as measured before" if keys <= this.speeds.keys() else f"at {whose} {guess:g} tok/s"
    return total, f"{what} that take {lasting} {pace}"


def start_s(facts: Mapping[str, Any]) -> float:
    """What one start of the service takes here, also when it does not run now."""
    service = facts["service"]
    return away({**facts, "service": {**service, "unit": {**service["unit"], "processes": [0]}}}).seconds
