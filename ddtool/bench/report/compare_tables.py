"""Two runs side by side on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ddtool.bench.report.bench_tables import better, interval, present, spoilers
from ddtool.bench.report.look import Bars, Column, Sheet, Words
from ddtool.bench.report.values import Json, arms_of, heading, look, number, times

MEASURES = (
    ("tok/s\na user", "tok_s_user"),
    ("TTFT\nms, p50", "ttft_ms"),
    ("TPOT\nms, p50", "tpot_ms"),
    ("tokens\na round", "accept"),
    ("round\nms", "round_ms"),
)


def compare_tables(compared: Json) -> list[RenderableType]:
    """The whole of a `ddtool.bench.compare/1`: what differs first, then a table for each cell."""
    made: list[RenderableType] = [
        who(compared, "a"),
        who(compared, "b"),
        *spoilers(compared),
        *differs(compared),
    ]
    for cell in compared.get("cells") or []:
        made += ["", cell_sheet(cell)]
    for side in ("a", "b"):
        missing = compared.get(f"only_{side}") or []
        made += [Words(f"only in {side}: {', '.join(map(str, missing))}", "dim")] if missing else []
    return made


def who(compared: Json, side: str) -> Words:
    run = compared.get(side) or {}
    return Words(f"{side}: run {run.get('run')}, {run.get('profile')} on {run.get('host')}", "bold")


def differs(compared: Json) -> list[RenderableType]:
    """What else is not the same: a ratio may be of this, too."""
    return [
        Words(f"differs: {each.get('what')}: {each.get('a')} in a, {each.get('b')} in b", "yellow")
        for each in compared.get("differs") or []
    ]


def cell_sheet(cell: Json) -> Sheet:
    arms = arms_of([cell])
    rows = [cell["arms"][arm].get("tok_s") or {} for arm in arms]
    most = max((value for row in rows for side in "ab" if (value := row.get(side))), default=0)
    styles = [better(row) for row in rows]
    groups: list[list[Column | Bars | None]] = [
        [
            Column("tok/s\na", [number(row.get("a")) for row in rows]),
            Bars([row.get("a") for row in rows], most, width=6),
            Column("\nb", [number(row.get("b")) for row in rows]),
            Bars([row.get("b") for row in rows], most, width=6),
            Column("b to a", [times(row.get("ratio")) for row in rows], styles=styles),
            Column("interval", [interval(row) for row in rows], styles=styles),
        ],
        *(pair(name, [look(cell, "arms", arm, key) for arm in arms]) for name, key in MEASURES),
    ]
    return Sheet(heading(cell), Column("arm", arms, text=True), [present(group) for group in groups])


def pair(name: str, rows: Sequence[Json | None]) -> list[Column | Bars | None]:
    """Both runs' values of a measure; nothing where neither has one."""
    if not any(look(row, side) is not None for row in rows for side in "ab"):
        return []
    return [
        Column(f"{name}\na", [number(look(row, "a")) for row in rows]),
        Column("\nb", [number(look(row, "b")) for row in rows]),
    ]
