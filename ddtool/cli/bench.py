"""`ddtool bench`, `bench compare`, `bench list`: arms against each other, on the host or by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileArg, SetOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.bench.store import Folder

ReportOpt = Annotated[
    str | None,
    typer.Option(
        "--report", metavar="FILE", help="Write the report with its plots, one HTML page.", show_default=False
    ),
]


MOST = 10_000  # requests of a pass, repeats, visits: a slip of the finger is told before it fills the memory
MOST_TOKENS = 1 << 20
HOTTEST = 100.0


def register(app: typer.Typer) -> None:
    app.command()(bench)
    app.command("bench compare")(compare)
    app.command("bench list")(list_runs)


def bench(
    profile: ProfileArg = None,
    arms: Annotated[
        str | None,
        typer.Option(
            "--arms",
            help="plain, chain, tree:BUDGET[:TOPK], with commas between; default: plain, chain and the profile's tree.",
            show_default=False,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="code, chat, reasoning, a FILE.jsonl, synthetic:IN:OUT; may be repeated. Default: code.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N,…",
            help="So many requests at a time; default: 1, and the objective's.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="R,…", help="Requests a second, arriving by chance.", show_default=False
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", min=2, max=MOST_TOKENS, help="Tokens of an answer, at most.")
    ] = 256,
    prompts: Annotated[
        int | None,
        typer.Option(
            "--prompts",
            min=1,
            max=MOST,
            help="Requests of a pass, at least one for each slot; default: two, at least 8.",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=MOST, help="Passes a visit over each load.")
    ] = 5,
    visits: Annotated[
        int,
        typer.Option(
            "--visits", min=1, max=MOST, help="Server starts of each arm, alternating: A B C, C B A."
        ),
    ] = 2,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", min=0.0, max=HOTTEST, help="Default: the profile's, else 0.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of synthetic prompts and of arrivals; the same for all arms.")
    ] = 1,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos",
            help="Every answer has all its tokens; what follows a text's end repeats itself, which flatters drafts.",
        ),
    ] = False,
    warm_cache: Annotated[
        bool, typer.Option("--warm-cache", help="Leave the prefix cache as the pass before left it; a taint.")
    ] = False,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo",
            metavar="ttft=500ms,tpot=20ms",
            help="Bounds (ttft, tpot, e2e) that a request must keep to count as goodput.",
            show_default=False,
        ),
    ] = None,
    lossless: Annotated[
        bool,
        typer.Option("--lossless", help="Compare the answers with plain decoding's, too; exit 8 on a loss."),
    ] = False,
    report: ReportOpt = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            metavar="ARM=URL",
            help="Measure servers that run already, from this machine; once for each arm. Nothing restarts.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Go on with a run that broke off: only what it has not measured.",
            show_default=False,
        ),
    ] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Watch the benchmark that runs on the host, or its last one.")
    ] = False,
    host: HostOpt = None,
    overrides: SetOpt = None,
    drain: DrainOpt = 0,
    dry_run: DryRunOpt = False,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Measure arms of a profile against each other: plain decoding, the DFLASH chain, DDTREE at budgets.

    On the host each arm's server is started in turn, and the deployed service is put back at the end, or wherever it
    breaks off; the plan says what outage that is. The profile's objective is judged: exit 8 when it is missed.
    """
    from ddtool.cli import bench_files, bench_run, bench_url
    from ddtool.errors import UsageError

    if (resume is not None) + attach + (url is not None) > 1:
        raise UsageError("--resume, --attach and --url exclude each other", hint="ddtool bench --help")
    bench_files.check({"--report": report})
    show = bench_run.Show(report=report, json=json)
    where = bench_run.Where(profile, host, tuple(overrides or ()), dry_run=dry_run, yes=yes, drain=drain)
    if attach:
        bench_run.attach(where, show)
        return
    if resume is not None:
        bench_run.resume(resume, where, show)
        return
    wanted: dict[str, Any] = {
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
    if url:
        if arms:
            raise UsageError(
                "with --url the arms are the servers named", hint="--url chain=URL --url tree:32=URL"
            )
        bench_url.new(url, workload or ["code"], wanted, where, show)
    else:
        bench_run.on_host(arms, workload or ["code"], wanted, where, show)


def compare(
    before: Annotated[str, typer.Argument(help="A run, or a file that --json was written to.")],
    after: Annotated[
        str, typer.Argument(help="The run to hold against it: ratios are this one's over that one's.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Although cards, prompts or lengths differ; says so.")
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
    return {
        **{name: about[name] for name in ("run", "profile", "host", "created")},
        "arms": list(design.arms),
        "cells": [cell.key for cell in design.cells],
        "done": len(folder.done()),
        "of": len(alternating(design)),
        "folder": str(folder.path),
    }
