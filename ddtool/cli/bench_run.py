"""What `ddtool bench` does with its words: plan, ask, watch, conclude, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ddtool.cli import bench_files as files
from ddtool.cli import options, output, plans
from ddtool.cli.bench_again import attaching, going_on, kept, resuming

if TYPE_CHECKING:
    from ddtool.bench.lossless import Ask
    from ddtool.bench.on_host import Measurement
    from ddtool.bench.store import Folder
    from ddtool.cli.bench_progress import Watch
    from ddtool.deploy.deployment import Deployment
    from ddtool.profile import Profile

Json = dict[str, Any]


@dataclass(frozen=True)
class Show:
    """How a result is given."""

    report: str | None
    json: bool


@dataclass(frozen=True)
class Where:
    """The profile as typed, and its host; and whether anything may happen there."""

    profile: str | None
    host: str | None
    overrides: tuple[str, ...]
    dry_run: bool
    yes: bool
    drain: float

    def remembered(self, how: Mapping[str, Any]) -> Where:
        """What was not typed is as it was when the run began."""
        return Where(
            self.profile or how.get("profile"),
            self.host or how.get("host"),
            self.overrides or tuple(how.get("set") or ()),
            dry_run=self.dry_run,
            yes=self.yes,
            drain=self.drain,
        )


def on_host(
    arms: str | None, workload: Sequence[str], wanted: Mapping[str, Any], where: Where, show: Show
) -> None:
    """A new run."""
    from ddtool.bench import arms as all_arms
    from ddtool.bench import asked, host_run
    from ddtool.deploy.deployment import Deployment

    chosen, name = options.selected(where.profile, list(where.overrides), where.host)
    names = [arm.name for arm in all_arms.parse_all(arms, chosen)]
    design, loaded = asked.design(chosen, names, workload, **wanted)
    how = {"profile": typed_profile(where.profile, chosen), "set": list(where.overrides), "host": name}
    with Deployment(chosen, name) as deployment:
        settled(deployment, where)
        measurement = host_run.prepare(deployment, design, loaded, typed=list(workload), how=how)
        said = asked.temperature_said(chosen, design, wanted["temperature"])
        carry_out(deployment, measurement, None, where, show, said)


def typed_profile(typed: str | None, profile: Profile) -> str:
    """By which `--resume` finds it again."""
    return str(Path(profile.source).resolve()) if typed is None or Path(typed).is_file() else typed


def settled(deployment: Deployment, where: Where) -> None:
    """What a killed transaction left is finished or undone first, unless nothing may change."""
    from ddtool.cli import progress

    if not where.dry_run:
        deployment.settle(progress.show)


def resume(name: str, where: Where, show: Show) -> None:
    """Go on with a run, where it began."""
    from ddtool.bench import asked, host_run, store
    from ddtool.bench.passes import Design
    from ddtool.cli import bench_url
    from ddtool.deploy.deployment import Deployment
    from ddtool.errors import UsageError

    folder = store.find(name)
    about = folder.run
    if going_on(folder)[0] != "bench":
        raise UsageError(f"{folder.path.name} is a tuning run's", hint=resuming(folder))
    where = where.remembered(about["how"])
    design = Design.from_json(about["plan"])
    if about["how"].get("urls"):
        pairs = [f"{arm}={url}" for arm, url in about["how"]["urls"].items()]
        bench_url.again(pairs, folder, design, where, show)
        return
    chosen, host = options.selected(where.profile, list(where.overrides), where.host)
    loaded = asked.load_all(about["workloads"], chosen, design.seed)
    with Deployment(chosen, host) as deployment:
        settled(deployment, where)
        measurement = host_run.prepare(
            deployment, design, loaded, typed=about["workloads"], how=about["how"], resumed=folder
        )
        if not measurement.left:
            output.words(f"{folder.path.name} is whole: every pass has its end", "green")
            if not where.dry_run:
                finish(folder, show, judge_on_host(deployment, measurement, folder, where.yes))
            return
        carry_out(deployment, measurement, folder, where, show, f"resumes {folder.path.name}")


def carry_out(
    deployment: Deployment,
    measurement: Measurement,
    folder: Folder | None,
    where: Where,
    show: Show,
    said: str,
) -> None:
    """Show the plan, ask, measure, and give the result."""
    done = measured(deployment, measurement, folder, where, show, said)
    if done is not None:
        finish(done, show, judge_on_host(deployment, measurement, done, yes=True))


def measured(
    deployment: Deployment,
    measurement: Measurement,
    folder: Folder | None,
    where: Where,
    show: Show,
    said: str,
    question: str = "Measure this",
) -> Folder | None:
    """Show the plan and what is `said` of it, ask, measure. `folder`: of a run that goes on. None with --dry-run."""
    import time

    from ddtool.bench import host_run, on_host
    from ddtool.bench.store import Folder
    from ddtool.deploy.drain import drained

    plan = drained(on_host.plan(measurement, time.time()), where.drain)
    if where.dry_run or not show.json:
        plans.show(plan, deployment.host, show.json, deployment.round_trips)
        if said:
            output.words(said)
        for taint in measurement.about["taints"]:
            output.words(f"taint: {taint}", "yellow")
    if where.dry_run:
        return None
    output.confirm(f"{question} on {deployment.host}?", where.yes)
    transaction = host_run.document(plan)
    folder = folder or Folder.create(measurement.about)
    output.words(f"run {folder.path.name}, kept in {folder.path}; {resuming(folder)} goes on with it")
    watched(deployment, measurement, transaction, folder)
    return folder


def watched(
    deployment: Deployment, measurement: Measurement, transaction: Mapping[str, Any], folder: Folder
) -> None:
    """Follow the transaction and copy its samples, however it ends."""
    from ddtool.bench import host_run, on_host
    from ddtool.bench.progress import Progress
    from ddtool.cli.bench_progress import Watch
    from ddtool.deploy import crashes
    from ddtool.deploy.apply import raise_for

    standing = Progress(measurement.left, on_host.start_s(measurement.facts), len(folder.done()))
    watch = Watch(standing)
    result = followed(deployment, transaction, watch, folder)
    host_run.fetch(deployment.agent, folder)
    if not result["ok"]:
        crashes.tell(deployment.agent, deployment.unit, deployment.profile, result, watch.event)
        output.words(kept(folder), "bold")
    raise_for(result)
    output.words(f"put back: {plans.put_back(result)}", "green")


def followed(
    deployment: Deployment, transaction: Mapping[str, Any], watch: Watch, folder: Folder
) -> dict[str, Any]:
    """The transaction's result. Ctrl-C has the host end it and put all back."""
    from ddtool.bench import host_run
    from ddtool.deploy import apply

    hint = attaching(folder)
    try:
        with watch:
            return host_run.run(deployment.agent, transaction, watch.event, hint)
    except KeyboardInterrupt:
        output.words("interrupted: the host ends the benchmark and puts everything back", "yellow")
        agent = deployment.reconnect()  # the old connection may be in the middle of a frame
        if apply.stop(agent, transaction["id"]):
            host_run.attach(agent, watch.again(), transaction["id"], hint)
        host_run.fetch(agent, folder)
        output.words(kept(folder), "bold")
        raise


def attach(where: Where, show: Show) -> None:
    """Watch the benchmark that runs on the host, and give its result as if it had been started here."""
    from ddtool.bench import host_judge, host_run, on_host
    from ddtool.bench.passes import Design, visits, without
    from ddtool.bench.progress import Progress
    from ddtool.cli.bench_progress import Watch
    from ddtool.deploy.apply import raise_for
    from ddtool.deploy.deployment import Deployment
    from ddtool.errors import UsageError

    chosen, name = options.selected(where.profile, list(where.overrides), where.host)
    with Deployment(chosen, name) as deployment:
        newest = next((row for row in deployment.agent.call("bench.list") if row["about"]), None)
        planned = visits(Design.from_json(newest["about"]["plan"])) if newest else []
        with Watch(Progress(planned, on_host.start_s(deployment.facts))) as watch:
            result = host_run.attach(deployment.agent, watch.event)
        if result["kind"] != on_host.KIND:
            raise UsageError(
                f"what this host did last is no benchmark: {result['kind']}", hint="ddtool status"
            )
        ident = (result.get("bench") or {}).get("run")
        if ident is None:
            raise_for(result)
            raise UsageError("that benchmark measured nothing", hint="ddtool bench list")
        folder = host_run.folder_of(deployment.agent, ident)
        host_run.fetch(deployment.agent, folder)
        if not result["ok"]:
            output.words(kept(folder), "bold")
        raise_for(result)
        output.words(f"put back: {plans.put_back(result)}", "green")
        if "judged" in result:
            host_judge.keep(folder, result["judged"])
        left = without(visits(Design.from_json(folder.run["plan"])), folder.done())
        asked = host_judge.unknown(folder)
        if left or asked:
            output.words(kept(folder), "bold")
        finish(folder, show, None if asked else host_judge.known(folder))


def judge_on_host(deployment: Deployment, measurement: Measurement, folder: Folder, yes: bool) -> Ask:
    """With --lossless: plain decoding is asked where answers differ. yes: that start has been agreed to."""
    from ddtool.bench import host_judge
    from ddtool.bench.progress import Progress
    from ddtool.cli.bench_progress import Watch
    from ddtool.deploy.apply import raise_for
    from ddtool.errors import DdtoolError

    asked = host_judge.unknown(folder)
    if asked:
        output.words(
            f"{len(asked)} places where answers differ from plain decoding's: plain starts once more to judge"
        )
        output.confirm(f"Stop the service on {deployment.host} for that?", yes)
        try:
            transaction = host_judge.document(measurement, folder, asked)
            result = followed(deployment, transaction, Watch(Progress([], 0.0)), folder)
            raise_for(result)
            host_judge.keep(folder, result["judged"])
        except DdtoolError:
            output.words(kept(folder), "bold")
            raise
    return host_judge.known(folder)


def finish(folder: Folder, show: Show, ask: Ask | None) -> None:
    """Conclude and show; exit 8 for a missed objective or a loss, which the result says as well."""
    from ddtool.bench import run
    from ddtool.bench.report import html, tables
    from ddtool.errors import VerificationFailed

    result = run.conclude(folder, ask)
    if show.report:  # before the result: with --json one object is all of stdout, an error's as well
        again = f"ddtool bench --resume {folder.path.name} --report FILE"
        files.write(show.report, html(result), again)
        output.words(f"report: {show.report}")
    if show.json:
        output.emit("bench", {name: value for name, value in result.items() if name != "schema"})
    else:
        for one in tables(result):
            output.stdout().print(one)
    try:
        run.check_verified(result)
    except VerificationFailed as error:
        output.report_error(error)
        raise typer.Exit(error.exit_code) from error
