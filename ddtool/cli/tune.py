"""`ddtool tune`: which budget is worth it here, or none."""

from __future__ import annotations

import typer

from ddtool.cli import bench_options as given
from ddtool.cli.options import DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileArg, SetOpt, YesOpt


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    ctx: typer.Context,
    profile: ProfileArg = None,
    concurrency: given.TunedConcurrencyOpt = None,
    context: given.ContextOpt = None,
    widths: given.WidthsOpt = None,
    workload: given.TracedWorkloadOpt = "code",
    tokens: given.TracedTokensOpt = 256,
    prompts: given.TracedPromptsOpt = None,
    temperature: given.TemperatureOpt = None,
    repeats: given.RepeatsOpt = 3,
    out: given.OutOpt = None,
    report: given.ReportOpt = None,
    resume: given.ResumeOpt = None,
    from_run: given.FromOpt = None,
    host: HostOpt = None,
    overrides: SetOpt = None,
    drain: DrainOpt = 0,
    dry_run: DryRunOpt = False,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Find the budget that is fastest on this machine, or say that the chain is.

    First the chain and a tree of each width are measured, and one server traces what the drafter says; that predicts
    every budget. Then the best one is run against its neighbours, the fastest so far and the chain, and that
    measurement decides. Each start is an outage, which the plan says beforehand. docs/tune.md has the formulas.
    """
    from ddtool.cli import bench_again, bench_files, tune_run
    from ddtool.cli.bench_run import Show, Where

    bench_again.check(ctx)
    bench_files.check({"--report": report, "--out": out})
    where = Where(profile, host, tuple(overrides or ()), dry_run=dry_run, yes=yes, drain=drain)
    show = Show(report=report, json=json)
    if from_run is not None:
        tune_run.from_run(from_run, where, show, out)
    elif resume is not None:
        tune_run.resume(resume, where, show, out)
    else:
        wanted = {
            "concurrency": concurrency,
            "tokens": tokens,
            "prompts": prompts,
            "temperature": temperature,
            "repeats": repeats,
        }
        tune_run.new(workload, context, widths, wanted, where, show, out)
