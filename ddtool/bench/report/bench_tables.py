"""A result on the terminal: what spoils it first, then a table for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType

from ddtool.bench.report.look import Bars, Column, Sheet, Words, middle
from ddtool.bench.report.values import (
    Json,
    arms_of,
    base_of,
    heading,
    judged,
    look,
    number,
    plain_text,
    pooled,
    ratio_of,
    share,
    taints_of,
    times,
    workload_name,
    workloads_of,
)

Numbers = list[float | None]
TOLD = 5
"""Divergences shown; `--json` has all."""
VERDICTS = {"equal": "green", "near-ties": "green", "differs": "bold red"}


def bench_tables(result: Json) -> list[RenderableType]:
    """The whole of a `ddtool.bench/1`."""
    cells = result.get("cells") or []
    made: list[RenderableType] = [*head(result), *spoilers(result), *objective(result)]
    if len(cells) > 1:
        made += ["", overview(cells)]
    for alike in workloads_of(cells):
        for cell in alike:
            made += ["", cell_sheet(result, cell)]
        made += accept_sheet(alike)
    return [*made, *lossless(result)]


def head(result: Json) -> list[RenderableType]:
    """One line: of what, where, which run."""
    what = f"{result.get('profile')} on {result.get('host')}, run {result.get('run')}"
    return [Words(what, "bold")]


def spoilers(result: Json) -> list[RenderableType]:
    """What spoils a result, before any number of it."""
    return [
        *(Words(f"tainted: {taint}", "bold red") for taint in result.get("taints") or []),
        *(Words(f"warning: {warning}", "yellow") for warning in result.get("warnings") or []),
    ]


def objective(result: Json) -> list[RenderableType]:
    wanted = result.get("objective")
    if not wanted:
        return []
    return [Words(judged(wanted), "bold green" if wanted.get("met") else "bold red")]


def overview(cells: Sequence[Json]) -> Sheet:
    """tok/s of every arm in every cell; the best of a cell is bold."""
    arms = arms_of(cells)
    medians = {arm: [look(cell, "arms", arm, "tok_s", "median") for cell in cells] for arm in arms}
    best = [
        max((v for arm in arms if (v := medians[arm][i]) is not None), default=None)
        for i in range(len(cells))
    ]
    columns = [
        Column(
            arm_name(arm),
            [number(value) for value in medians[arm]],
            styles=[
                "bold green" if value is not None and value == best[i] else ""
                for i, value in enumerate(medians[arm])
            ],
        )
        for arm in arms
    ]
    keys = [plain_text(look(cell, "cell", "key")) for cell in cells]
    return Sheet(
        "output tok/s, median over the passes",
        Column("cell", keys, text=True),
        [[column] for column in columns],
    )


def arm_name(arm: str) -> str:
    """An arm as a column's name."""
    return middle(plain_text(arm), 16)


def cell_sheet(result: Json, cell: Json) -> Sheet:
    """The numbers of a cell's arms."""
    arms = arms_of([cell])
    rows = [cell["arms"][arm] for arm in arms]
    title = heading(cell)
    if not arms:
        return Sheet(title, Column("nothing was measured here", [], text=True), [])
    throughput: Numbers = [look(row, "tok_s", "median") for row in rows]
    marks = ["".join(mark(result, arm, row)) for arm, row in zip(arms, rows, strict=True)]
    groups: list[list[Column | Bars | None]] = [
        [
            Column("tok/s", [number(value) for value in throughput]),
            Bars(throughput, max((value for value in throughput if value), default=0)),
            Column("", marks, text=True, styles=["bold red"] * len(rows)) if any(marks) else None,
            *ratio_columns(cell, arms),
        ],
        [
            measured("tok/s\na user", rows, "tok_s_user", "median"),
            measured("tokens\na round", rows, "accept", "mean"),
            measured("round\nms", rows, "round_ms"),
            measured("failed", rows, "errors"),
        ],
        quantiles("TTFT", rows, "ttft_ms"),
        quantiles("ITL", rows, "itl_ms"),
    ]
    return Sheet(
        title, Column("arm", arms, text=True), [present(group) for group in groups], notes(arms, rows, marks)
    )


def quantiles(name: str, rows: Sequence[Json], key: str) -> list[Column | Bars | None]:
    return [measured(f"{name} ms\n{quantile}", rows, key, quantile) for quantile in ("p50", "p99")]


def present(columns: Iterable[Column | Bars | None]) -> list[Column | Bars]:
    return [column for column in columns if column is not None]


def mark(result: Json, arm: str, row: Json) -> list[str]:
    """`!` for a taint that names the arm, `~` for passes that disagree."""
    return ["!"] * bool(taints_of(result, arm)) + ["~"] * (row.get("stable") is False)


def notes(arms: Sequence[str], rows: Sequence[Json], marks: Sequence[str]) -> list[str]:
    told = []
    if any("!" in each for each in marks):
        told.append("! tainted, see above")
    unstable = [
        f"{arm_name(arm)} by {share(row.get('spread'))}"
        for arm, row in zip(arms, rows, strict=True)
        if row.get("stable") is False and row.get("spread") is not None
    ]
    return told + ([f"~ passes differ: {', '.join(unstable)}"] if unstable else [])


def ratio_columns(cell: Json, arms: Sequence[str]) -> list[Column]:
    """The ratio to the base arm, and its interval; none where nothing was compared."""
    ratios = [ratio_of(cell, arm) for arm in arms]
    if not any(ratios):
        return []
    base = base_of(cell)
    values = [
        "1" if arm == base else times(look(row, "ratio")) for arm, row in zip(arms, ratios, strict=True)
    ]
    intervals = [interval(row) for row in ratios]
    styles = [better(row) for row in ratios]
    columns = [Column(f"to\n{arm_name(base)}", values, styles=styles)]
    return [*columns, Column("interval", intervals, styles=styles)] if any(intervals) else columns


def interval(ratio: Json | None) -> str:
    """`1.022–1.054`; nothing where too few pairs were run to have one."""
    if not ratio or ratio.get("low") is None or ratio.get("high") is None:
        return ""
    return f"{times(ratio['low'])}–{times(ratio['high'])}"


def better(ratio: Json | None) -> str:
    """Green above 1 and red below it, where the whole interval is; no colour where it is not."""
    if not ratio or ratio.get("low") is None or ratio.get("high") is None:
        return ""
    return "green" if ratio["low"] > 1 else "red" if ratio["high"] < 1 else ""


def measured(name: str, rows: Sequence[Json], *path: str) -> Column | None:
    """A column of numbers, left out where there is none."""
    values = [look(row, *path) for row in rows]
    return (
        Column(name, [number(value) for value in values])
        if any(value is not None for value in values)
        else None
    )


def accept_sheet(cells: Sequence[Json]) -> list[RenderableType]:
    """The share of rounds that gave 1, 2, … tokens, a small bar each, over the cells of a workload together."""
    counts = pooled(cells)
    if not counts:
        return []
    totals = {arm: sum(each.values()) or 1 for arm, each in counts.items()}
    shares = {arm: {length: n / totals[arm] for length, n in each.items()} for arm, each in counts.items()}
    most = max(max(each.values()) for each in shares.values())
    groups: list[list[Column | Bars]] = []
    for length in range(1, max(map(max, counts.values())) + 1):
        column: Numbers = [each.get(length, 0.0) for each in shares.values()]
        percent = Column(str(length), [f"{value:.0%}" for value in column if value is not None])
        groups.append([percent, Bars(column, most, width=4)])
    title = f"{workload_name(cells[0])}: share of rounds by the tokens they gave, at every load"
    return ["", Sheet(title, Column("arm", list(counts), text=True), groups)]


def lossless(result: Json) -> list[RenderableType]:
    rows = result.get("lossless")
    if not rows:
        return []
    columns = present(
        [
            Column("cell", [str(row.get("cell")) for row in rows], text=True),
            measured("samples", rows, "samples"),
            measured("equal", rows, "equal"),
            measured("p", [row.get("distribution") or {} for row in rows], "p"),
            Column(
                "verdict",
                [str(row.get("verdict")) for row in rows],
                text=True,
                styles=[VERDICTS.get(str(row.get("verdict")), "yellow") for row in rows],
            ),
        ]
    )
    names = Column("arm", [str(row.get("arm")) for row in rows], text=True)
    words = [
        Words(f"{row.get('arm')}, {row.get('cell')}: {row['words']}") for row in rows if row.get("words")
    ]
    return ["", Sheet("output against plain decoding", names, [columns]), *words, *divergences(rows)]


def divergences(rows: Sequence[Json]) -> list[RenderableType]:
    """Where outputs part for more than a near tie, the first few of them."""
    found = [(row, each) for row in rows for each in row.get("divergences") or [] if not each.get("near_tie")]
    lines: list[RenderableType] = [
        Words(
            f"{row.get('arm')}, {row.get('cell')}, sample {each.get('index')}: token {each.get('position')} is "
            f"{each.get('found')} where plain decoding has {each.get('expected')}"
            + (f", {number(each['gap'])} apart" if each.get("gap") is not None else "")
        )
        for row, each in found[:TOLD]
    ]
    return [*lines, Words(f"and {len(found) - TOLD} more, in --json")] if len(found) > TOLD else lines
