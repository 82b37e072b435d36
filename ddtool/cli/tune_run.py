"""What `ddtool tune` does with its words: two runs on the host, one after the other, and an answer from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddtool.cli import bench_files, bench_run, options, output, tune_answer
from ddtool.cli.bench_run import Show, Where

if TYPE_CHECKING:
    from ddtool.bench.on_host import Measurement
    from ddtool.bench.passes import Design
    from ddtool.bench.store import Folder
    from ddtool.bench.tune.found import Found
    from ddtool.bench.workloads import Workload
    from ddtool.deploy.deployment import Deployment
    from ddtool.profile import Profile

Json = dict[str, Any]
VERIFY_ARMS = 5  # the chain, the best tree, its neighbours, and the fit's fastest; at more loads a few more
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
    from ddtool.bench import asked, workloads
    from ddtool.bench.tune import plan, rounds
    from ddtool.deploy.deployment import Deployment
    from ddtool.errors import UsageError

    profile, host = options.selected(where.profile, list(where.overrides), where.host)
    bench_files.spare(profile.source, out)
    measured = plan.widths(widths, plan.block_of(profile))
    contexts = [] if context is None else asked.numbers(context, int, "--context", workloads.LONGEST)
    typed = plan.workloads(workload, contexts, wanted["tokens"])
    design, loaded = asked.design(profile, plan.arms(measured), typed, rate=None, visits=1, **wanted)
    if len(loaded) != 1 + len(contexts):
        raise UsageError(
            f"--workload {workload}: one, since its texts are what is traced", hint="a tuning run for each"
        )
    traced = next(iter(loaded))
    cell = next(cell for cell in design.cells if cell.workload == traced)
    with Deployment(plan.timed(profile), host) as deployment:
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
    from ddtool.bench.tune import plan
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
    bench_files.spare(profile.source, out)
    design = Design.from_json(about["plan"])
    loaded = asked.load_all(about["workloads"], profile, design.seed)
    with Deployment(plan.timed(profile), host) as deployment:
        bench_run.settled(deployment, where)
        _both(deployment, design, loaded, about["workloads"], about["how"], folder, where, show, out)


def from_run(name: str, where: Where, show: Show, out: str | None) -> None:
    from ddtool.bench import store
    from ddtool.bench.tune import reading

    folder = store.find(name)
    profile = _profile_of(folder, name, where, out)
    if profile:
        bench_files.spare(profile.source, out)
    second, _ = reading.second_of(folder)
    tune_answer.give(reading.found(folder, second), folder, second, profile, show, out)


def _profile_of(folder: Folder, name: str, where: Where, out: str | None) -> Profile | None:
    """The profile typed, else the run's. None where the run's is gone, or it names none: then there is no overlay.

    Raises UsageError with --out, since what is written extends the profile.
    """
    from ddtool.errors import ProfileError, UsageError
    from ddtool.profile.search import find

    how = folder.run["how"]
    known = how.get("profile")
    gone = None if known else "the run names none"
    if known and not where.profile:
        try:
            find(known)
        except ProfileError as error:
            gone = error.message
    if where.profile or not gone:
        return options.profile_of(where.profile or known, list(where.overrides) or how.get("set"))
    if out:
        raise UsageError(
            f"--out {out} would extend the profile that was tuned: {gone}",
            hint=f"ddtool tune PROFILE --from {name} --out {out}",
        )
    if known:
        output.words(f"{gone}, so the answer has no overlay", "yellow")
    return None


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
        folder = bench_run.measured(deployment, fit, folder, where, show, _then(deployment))
        if folder is None:
            return
        measure.fetch_trace(deployment.agent, folder)
    assert folder is not None
    found = reading.found(folder, None)
    second, _ = reading.second_of(folder)
    made = _verification(deployment, found, design, loaded, {**how, "verifies": folder.path.name}, second)
    if made.left:
        _say(found)
        output.words(f"without the run that comes next: ddtool tune --from {folder.path.name}")
        question = "Run the answer against its neighbours"
        done = bench_run.measured(deployment, made, second, where, show, "", question)
        if done is None:
            return
        second = done
    tune_answer.give(reading.found(folder, second), folder, second, deployment.profile, show, out)


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
    from ddtool.bench.tune.found import main_load, speeds, tried

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
    made = host_run.prepare(deployment, design, only, typed=typed, how=about, resumed=resumed)
    return replace(made, speeds=speeds(found, design.cells))


def _say(found: Found) -> None:
    """What is predicted, before it is judged."""
    from ddtool.bench.tune.found import choice

    for load in found.main:
        said = choice(found, load)
        output.words(f"{load.workload}, {load.concurrency} at a time: {said.why}")
