"""`ddtool bench`, `bench compare`, `bench list`: arms against each other, on the host or by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli import bench_options as given
from ddtool.cli.options import DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileArg, SetOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.bench.store import Folder


def register(app: typer.Typer) -> None:
    app.command()(bench)
    app.command("bench compare")(compare)
    app.command("bench list")(list_runs)


def bench(
    ctx: typer.Context,
    profile: ProfileArg = None,
    arms: given.ArmsOpt = None,
    workload: given.WorkloadsOpt = None,
    concurrency: given.ConcurrencyOpt = None,
    rate: given.RateOpt = None,
    tokens: given.TokensOpt = 256,
    prompts: given.PromptsOpt = None,
    repeats: given.RepeatsOpt = 5,
    visits: given.VisitsOpt = 2,
    temperature: given.TemperatureOpt = None,
    seed: given.SeedOpt = 1,
    ignore_eos: given.IgnoreEosOpt = False,
    warm_cache: given.WarmCacheOpt = False,
    slo: given.SloOpt = None,
    lossless: given.LosslessOpt = False,
    report: given.ReportOpt = None,
    url: given.UrlOpt = None,
    resume: given.ResumeOpt = None,
    attach: given.AttachOpt = False,
    host: HostOpt = None,
    overrides: SetOpt = None,
    drain: DrainOpt = 0,
    dry_run: DryRunOpt = False,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Measure arms of a profile against each other: plain decoding, the DFLASH chain, DDTREE at budgets.

    On the host each arm's server is started in turn, and the deployed service is put back at the end, or wherever it
    breaks off. The profile's objective is judged: exit 8 when it is missed.
    """
    from ddtool.cli import bench_again, bench_files, bench_run, bench_url

    bench_again.check(ctx)
    bench_files.check({"--report": report})
    show = bench_run.Show(report=report, json=json)
    where = bench_run.Where(profile, host, tuple(overrides or ()), dry_run=dry_run, yes=yes, drain=drain)
    wanted = {
        "concurrency": concurrency,
        "rate": rate,
        "tokens": tokens,
        "prompts": prompts,
        "repeats": repeats,
        "visits": visits,
        "temperature": temperature,
        "seed": seed,
        "ignore_eos": ignore_eos,
        "flush": not warm_cache,
        "slo": slo,
        "lossless": lossless,
    }
    if attach:
        bench_run.attach(where, show)
    elif resume is not None:
        bench_run.resume(resume, where, show)
    elif url:
        bench_url.new(url, workload or ["code"], wanted, where, show)
    else:
        bench_run.on_host(arms, workload or ["code"], wanted, where, show)


def compare(
    before: Annotated[str, typer.Argument(help="A run, or a file that --json was written to.")],
    after: Annotated[
        str, typer.Argument(help="The run to hold against it: ratios are this one's over that one's.")
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Although cards, prompts, temperatures, lengths or --ignore-eos differ; says so."
        ),
    ] = False,
    json: JsonOpt = False,
) -> None:
    """Two runs side by side: what differs in their fingerprints, and by how much each arm does."""
    from ddtool.bench import store
    from ddtool.bench.compare import compare as compared
    from ddtool.bench.report import tables
    from ddtool.cli import output
    from ddtool.errors import UsageError

    a, b = store.result_of(before), store.result_of(after)
    try:
        found = compared(a, b, force=force)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{before} or {after} is not a whole result: {error!r}", hint="ddtool bench list"
        ) from error
    if json:
        output.emit("bench.compare", {name: value for name, value in found.items() if name != "schema"})
        return
    for one in tables(found):
        output.stdout().print(one)


def list_runs(json: JsonOpt = False) -> None:
    """The runs that this machine has, newest first; also those that broke off."""
    from ddtool.bench import store
    from ddtool.cli import output
    from ddtool.errors import DdtoolError

    rows = []
    for folder in store.runs():
        try:
            rows.append(row_of(store.checked(folder)))
        except DdtoolError as error:  # one broken folder hides no other
            output.words(f"left out: {error.message}", "yellow")
    if json:
        output.emit("bench.list", {"runs": rows})
        return
    columns = ("run", "profile", "host", "arms", "loads", "passes")
    cells = [
        (
            row["run"],
            row["profile"] or "–",
            row["host"],
            " ".join(row["arms"]),
            " ".join(row["cells"]),
            f"{row['done']} of {row['of']}",
        )
        for row in rows
    ]
    output.stdout().print(output.table(None, columns, cells))


def row_of(folder: Folder) -> dict[str, Any]:
    from ddtool.bench.passes import Design, alternating

    about = folder.run
    design = Design.from_json(about["plan"])
    planned = {one.ident for one in alternating(design)}  # a tuning run's traced pass is none of these
    return {
        **{name: about[name] for name in ("run", "profile", "host", "created")},
        "arms": list(design.arms),
        "cells": [cell.key for cell in design.cells],
        "done": len(planned & folder.done().keys()),
        "of": len(planned),
        "folder": str(folder.path),
    }
