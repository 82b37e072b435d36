"""What `ddtool tune` does with its words: two runs on the host, one after the other, and an answer from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.cli import bench_run, options, output
from ddtool.cli.bench_run import Show, Where

if TYPE_CHECKING:
    from ddtool.bench.on_host import Measurement
    from ddtool.bench.passes import Design
    from ddtool.bench.store import Folder
    from ddtool.bench.tune.found import Found
    from ddtool.bench.tune.predict import Load
    from ddtool.bench.tune.recommend import Choice
    from ddtool.bench.workloads import Workload
    from ddtool.deploy.deployment import Deployment
    from ddtool.profile import Profile

Json = dict[str, Any]
VERIFY_ARMS = 4  # the chain, the best tree and its neighbours
VERIFY_VISITS, VERIFY_PASSES = 2, 3  # of each arm, and of each visit: an interval needs five passes


def new(
    workload: str,
    context: str | None,
    widths: str | None,
    wanted: Mapping[str, Any],
    where: Where,
    show: Show,
    out: str | None,
) -> None:
    from ddtool.bench import asked
    from ddtool.bench.tune import plan, rounds
    from ddtool.deploy.deployment import Deployment
    from ddtool.errors import UsageError

    profile, host = options.selected(where.profile, list(where.overrides), where.host)
    measured = plan.widths(widths, plan.block_of(profile))
    contexts = asked.numbers(context, int, "--context") if context else []
    typed = plan.workloads(workload, contexts, wanted["tokens"])
    design, loaded = asked.design(profile, plan.arms(measured), typed, rate=None, visits=1, **wanted)
    if len(loaded) != 1 + len(contexts):
        raise UsageError(
            f"--workload {workload}: one, since its texts are what is traced", hint="a tuning run for each"
        )
    traced = next(iter(loaded))
    cell = next(cell for cell in design.cells if cell.workload == traced)
    with Deployment(profile, host) as deployment:
        bench_run.settled(deployment, where)
        experts = plan.experts_of(deployment.facts["model"]["config"] or {})
        how = {
            "profile": bench_run.typed_profile(where.profile, profile),
            "set": list(where.overrides),
            "host": host,
            "tune": {
                "traced": rounds.CONCURRENCY.sub("", cell.key, count=1),
                "workload": traced,
                "typed": workload,
                "topk": profile.speculative.topk or plan.TOPK,
                "experts": [experts.count, experts.chosen] if experts else None,
            },
        }
        _both(deployment, design, loaded, typed, how, None, where, show, out)


def resume(name: str, where: Where, show: Show, out: str | None) -> None:
    from ddtool.bench import asked, store
    from ddtool.bench.passes import Design
    from ddtool.deploy.deployment import Deployment
    from ddtool.errors import UsageError

    folder = store.find(name)
    about = folder.run
    if "tune" not in about["how"]:
        raise UsageError(
            f"{folder.path.name} is no tuning run", hint=f"ddtool bench --resume {folder.path.name}"
        )
    where = where.remembered(about["how"])
    profile, host = options.selected(where.profile, list(where.overrides), where.host)
    design = Design.from_json(about["plan"])
    loaded = asked.load_all(about["workloads"], profile, design.seed)
    with Deployment(profile, host) as deployment:
        bench_run.settled(deployment, where)
        _both(deployment, design, loaded, about["workloads"], about["how"], folder, where, show, out)


def from_run(name: str, where: Where, show: Show, out: str | None) -> None:
    from ddtool.bench import store
    from ddtool.bench.tune import reading

    folder = store.find(name)
    how = folder.run["how"]
    named = where.profile or how.get("profile")
    profile = options.profile_of(named, list(where.overrides) or how.get("set")) if named else None
    second = _second_of(folder)
    give(reading.found(folder, second), folder, second, profile, show, out)


def _both(
    deployment: Deployment,
    design: Design,
    loaded: Mapping[str, Workload],
    typed: Sequence[str],
    how: Json,
    resumed: Folder | None,
    where: Where,
    show: Show,
    out: str | None,
) -> None:
    """Fit, then verify what the fit recommends."""
    from ddtool.bench.tune import measure, reading

    traced = how["tune"]["workload"]
    fit = measure.prepare(deployment, design, loaded, typed=typed, how=how, traced=traced, resumed=resumed)
    folder = resumed
    if fit.left:
        folder = _carry_out(deployment, fit, folder, where, show, "Measure this", _then(deployment))
        if folder is None:
            return
        measure.fetch_trace(deployment.agent, folder)
    assert folder is not None
    found = reading.found(folder, None)
    second = _second_of(folder)
    made = _verification(deployment, found, design, loaded, {**how, "verifies": folder.path.name}, second)
    if made.left:
        _say(found)
        done = _carry_out(
            deployment, made, second, where, show, "Run the answer against its neighbours", "", folder
        )
        if done is None:
            return
        second = done
    give(reading.found(folder, second), folder, second, deployment.profile, show, out)


def _then(deployment: Deployment) -> str:
    from ddtool.bench import on_host

    starts = VERIFY_ARMS * VERIFY_VISITS + 1
    seconds = starts * on_host.start_s(deployment.facts)
    return (
        f"afterwards the answer is run against its neighbours: about {starts} more starts, "
        f"{output.minutes(seconds)} of them alone, which a second plan asks about"
    )


def _verification(
    deployment: Deployment,
    found: Found,
    fit: Design,
    loaded: Mapping[str, Workload],
    how: Json,
    resumed: Folder | None,
) -> Measurement:
    from dataclasses import replace

    from ddtool.bench import host_run
    from ddtool.bench.passes import Design
    from ddtool.bench.tune.found import tried

    if resumed is not None:
        design = Design.from_json(resumed.run["plan"])
    else:
        arms = [found.name(shape) for shape in tried(found, main_load(found, fit))]
        cells = [cell for cell in fit.cells if cell.workload == how["tune"]["workload"]]
        repeats = max(fit.repeats, VERIFY_PASSES)
        design = replace(fit, arms=arms, cells=cells, visits=VERIFY_VISITS, repeats=repeats)
    name = how["tune"]["workload"]
    about = {key: value for key, value in how.items() if key != "tune"}
    only, typed = {name: loaded[name]}, [how["tune"]["typed"]]
    return host_run.prepare(deployment, design, only, typed=typed, how=about, resumed=resumed)


def _carry_out(
    deployment: Deployment,
    made: Measurement,
    folder: Folder | None,
    where: Where,
    show: Show,
    question: str,
    then: str,
    first: Folder | None = None,
) -> Folder | None:
    """Show the plan, ask, measure. None with --dry-run. first: the run that this one verifies."""
    import time

    from ddtool.bench import host_run, on_host
    from ddtool.bench.store import Folder
    from ddtool.cli import plans
    from ddtool.deploy.drain import drained

    planned = drained(on_host.plan(made, time.time()), where.drain)
    if where.dry_run or not show.json:
        plans.show(planned, deployment.host, show.json, deployment.round_trips)
        for taint in made.about["taints"]:
            output.words(f"taint: {taint}", "yellow")
        if then:
            output.words(then)
    if where.dry_run:
        return None
    output.confirm(f"{question} on {deployment.host}?", where.yes)
    transaction = host_run.document(planned)
    folder = folder or Folder.create(made.about)
    resumable = (first or folder).path.name
    output.words(
        f"run {folder.path.name}, kept in {folder.path}; ddtool tune --resume {resumable} goes on with it"
    )
    bench_run.watched(deployment, made, transaction, folder)
    return folder


def _second_of(folder: Folder) -> Folder | None:
    """The newest run that verified what this one recommended, or began to."""
    from ddtool.bench.store import Folder

    beside = [Folder(path.parent) for path in sorted(folder.path.parent.glob("*/run.json"), reverse=True)]
    return next((one for one in beside if one.run["how"].get("verifies") == folder.path.name), None)


def main_load(found: Found, design: Design) -> Load:
    """What the recommendation is for: the first concurrency that was asked for."""
    first = design.cells[0].concurrency
    return next((load for load in found.main if load.concurrency == first), found.main[0])


def _say(found: Found) -> None:
    """What is predicted, before it is judged."""
    from ddtool.bench.tune.found import choice

    for load in found.main:
        said = choice(found, load)
        output.words(f"{load.workload}, {load.concurrency} at a time: {said.why}")


def give(
    found: Found, fit: Folder, second: Folder | None, profile: Profile | None, show: Show, out: str | None
) -> None:
    """The answer: as tables or JSON, as a report, as an overlay."""
    from ddtool.bench.passes import Design
    from ddtool.bench.report import html, tables
    from ddtool.bench.tune import answer
    from ddtool.bench.tune.found import choice

    load = main_load(found, Design.from_json(fit.run["plan"]))
    chosen = choice(found, load)
    overlay = overlay_of(found, chosen, load, fit, profile, out)
    told = answer.answer(found, fit.run, chosen, load, overlay)
    if show.json:
        output.emit("tune", {name: value for name, value in told.items() if name != "schema"})
    else:
        for one in tables(told):
            output.stdout().print(one)
    if out and overlay:
        Path(out).write_text(overlay, encoding="utf-8")
        _checked(out, profile)
    if show.report:
        Path(show.report).write_text(html(_result(second or fit), told), encoding="utf-8")
        output.words(f"report: {show.report}")


def _result(folder: Folder) -> Json:
    """Of the run beside the answer, as `bench` would give it; the traced pass is no arm."""
    from ddtool.bench import results
    from ddtool.bench.tune.plan import TRACE

    lines = [line for line in folder.lines() if not str(line.get("pass")).startswith(f"{TRACE}/")]
    return results.summarise(folder.run, lines)


def overlay_of(
    found: Found, chosen: Choice, load: Load, fit: Folder, profile: Profile | None, out: str | None
) -> str:
    """Empty without a profile."""
    from ddtool.bench.tune import overlay

    if profile is None:
        return ""
    rates = found.rates(found.verified, load)
    about = fit.run
    source = f"ddtool tune, run {about['run']} of {about['created']} on {about['host']}"
    evidence = [
        f"{chosen.why}.",
        f"{source}; workload {load.workload}, {load.concurrency} at a time.",
        *(
            f"  {found.name(shape)}: {' '.join(f'{value:.1f}' for value in values)} tok/s"
            for shape, values in sorted(rates.items())
        ),
        *([] if rates else ["Predicted only: it was not run against its neighbours."]),
    ]
    return overlay.text(profile, chosen.shape, evidence, Path(out) if out else None)


def _checked(out: str, base: Profile | None) -> None:
    """Say what `profile validate` will."""
    from ddtool.profile import load
    from ddtool.profile.validate import require_valid

    require_valid(load(out if "/" in out else f"./{out}"))
    hint = f"ddtool deploy {out}" + (
        f" --host … (or: ddtool profile bind {Path(out).stem} HOST)" if base else ""
    )
    output.words(f"wrote {out}, a valid profile; next: {hint}")
