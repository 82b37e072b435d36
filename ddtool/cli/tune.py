"""`ddtool tune`: which budget is worth it here, or none."""

from __future__ import annotations

from typing import Annotated

import typer

from ddtool.cli.bench import ReportOpt
from ddtool.cli.options import DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileArg, SetOpt, YesOpt


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    profile: ProfileArg = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N,…",
            help="So many requests at a time; what is recommended is for the first. Default: 1, and the objective's.",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="TOKENS,…",
            help="Measure the cost of a round behind prompts of so many random tokens, too.",
            show_default=False,
        ),
    ] = None,
    widths: Annotated[
        str | None,
        typer.Option(
            "--widths",
            metavar="N,…",
            help="Tokens of a verify, a tree's budget and the root; each is a server start. Default: eight, "
            "from the block to 65.",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        str, typer.Option("--workload", metavar="NAME", help="code, chat, reasoning or a FILE.jsonl.")
    ] = "code",
    tokens: Annotated[int, typer.Option("--tokens", min=32, help="Tokens of an answer, at most.")] = 256,
    prompts: Annotated[
        int | None,
        typer.Option(
            "--prompts",
            min=2,
            help="Requests of a pass, at least one for each slot; default: two, at least 8.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0.0, help="Default: the profile's, else 0.", show_default=False),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Passes over each load, of every start.")
    ] = 3,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write the answer as a profile, with its evidence.",
            show_default=False,
        ),
    ] = None,
    report: ReportOpt = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with a tuning run that broke off: only what it has not measured.",
            show_default=False,
        ),
    ] = None,
    from_run: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Answer from what a tuning run measured; no host is asked.",
            show_default=False,
        ),
    ] = None,
    host: HostOpt = None,
    overrides: SetOpt = None,
    drain: DrainOpt = 0,
    dry_run: DryRunOpt = False,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Find the budget that is fastest on this machine, or say that the chain is.

    First the chain and a tree of each width are measured, and one server traces what the drafter says; that predicts
    every budget. Then the best one is run against its neighbours and the chain, and that measurement decides. Each
    start is an outage, which the plan says beforehand. docs/tune.md has the formulas.
    """
    from ddtool.cli import bench_files, tune_run
    from ddtool.cli.bench_run import Show, Where
    from ddtool.errors import UsageError

    if resume is not None and from_run is not None:
        raise UsageError("--resume and --from exclude each other", hint="ddtool tune --help")
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
