"""A tuning run on the terminal: what to use, then what says so."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ddtool.bench.report.bench_tables import head, measured, present, spoilers
from ddtool.bench.report.look import Bars, Column, Sheet, Verbatim, Words
from ddtool.bench.report.values import (
    Json,
    advice,
    budget_curves,
    difference,
    look,
    number,
    plain_text,
    share,
    steps_of,
    verify_curves,
    verify_name,
    where_of,
)

MOST_ARMS = 16
"""More rows than these would hide what a table says."""


def tune_tables(tune: Json) -> list[RenderableType]:
    """The whole of a `ddtool.tune/1`."""
    return [
        *head(tune),
        *spoilers(tune),
        *recommendation(tune),
        *other_loads(tune),
        *checks(tune),
        *curves(tune),
        *acceptance(tune),
        *verify(tune),
        *split(tune),
        *experts(tune),
    ]


def recommendation(tune: Json) -> list[RenderableType]:
    """What to use, why, and the overlay that does it."""
    found = tune.get("recommendation")
    if not found:
        return []
    made: list[RenderableType] = [Words(advice(tune), "bold green"), Words(str(found.get("why") or ""))]
    return [*made, "", Verbatim(str(found["overlay"]))] if found.get("overlay") else made


def other_loads(tune: Json) -> list[RenderableType]:
    """What to use at each load, where more than one was asked about."""
    rows = tune.get("by_load") or []
    if len(rows) < 2:
        return []
    return ["", *(Words(f"{where_of(row)}: {row.get('why')}") for row in rows)]


def checks(tune: Json) -> list[RenderableType]:
    found = tune.get("checks") or []
    lines: list[RenderableType] = [
        Words(
            f"{'ok' if each.get('ok') else 'FAILED'}: {each.get('name')}: {each.get('detail')}",
            "" if each.get("ok") else "bold red",
        )
        for each in found
    ]
    return ["", *lines] if lines else []


def curves(tune: Json) -> list[RenderableType]:
    """Predicted against measured tok/s of each arm, by concurrency and context."""
    made: list[RenderableType] = []
    for curve in budget_curves(tune):
        rows = curve.arms if len(curve.arms) <= MOST_ARMS else curve.telling
        predicted = [curve.predicted.get(arm) for arm in rows]
        found = [curve.measured.get(arm) for arm in rows]
        most = max((value for value in (*predicted, *found) if value), default=0)
        group: list[Column | Bars | None] = [
            Column("predicted", [number(value) for value in predicted]),
            Bars(predicted, most),
        ]
        if any(value is not None for value in found):
            apart = [difference(one, other) for one, other in zip(predicted, found, strict=True)]
            group += [
                Column("measured", [number(value) for value in found]),
                Bars(found, most),
                Column("off by", [share(value) for value in apart]),
            ]
        made += ["", Sheet(f"tok/s, {curve.where}", Column("arm", rows, text=True), [present(group)])]
        left_out = len(curve.arms) - len(rows)
        made += (
            [Words(f"{left_out} more were predicted: --json and --report have them", "dim")]
            if left_out
            else []
        )
    return made


def acceptance(tune: Json) -> list[RenderableType]:
    rows = tune.get("acceptance") or []
    if not rows:
        return []
    columns = present(
        [
            measured("topk", rows, "topk"),
            measured("predicted", rows, "predicted"),
            measured("measured", rows, "measured"),
            measured("±", rows, "error"),
            *judged(rows),
        ]
    )
    values = [look(row, "predicted") for row in rows]
    bars = Bars(values, max((value for value in values if value), default=0))
    names = ["chain" if row.get("budget") == 0 else number(row.get("budget")) for row in rows]
    return ["", Sheet("tokens a round by budget", Column("budget", names), [[*columns, bars]])]


def judged(rows: Sequence[Json]) -> list[Column]:
    """How far predictions are off, and how many answers were the traced texts; none where nothing was measured."""
    off = [look(row, "judged", "off") for row in rows]
    if all(value is None for value in off):
        return []
    columns = [Column("off by", [share(value) for value in off])]
    same = [(look(row, "judged", "alike"), look(row, "judged", "answers")) for row in rows]
    if all(alike is None for alike, _ in same):
        return columns
    told = ["–" if alike is None else f"{number(alike)} of {number(answers)}" for alike, answers in same]
    return [*columns, Column("same text", told)]


def verify(tune: Json) -> list[RenderableType]:
    """What a round costs by the width that is verified, and the model that was fitted to it."""
    made: list[RenderableType] = []
    for curve in verify_curves(tune):
        rounds = [row.get("round_ms") for row in curve.rows]
        group = present(
            [
                measured("round", curve.rows, "round_ms"),
                Bars(rounds, max((value for value in rounds if value), default=0)),
                measured(verify_name(curve.rows), curve.rows, "verify_ms"),
                measured("fitted", curve.rows, "fitted_ms"),
                measured("draft", curve.rows, "draft_ms"),
                measured("tree", curve.rows, "tree_ms"),
            ]
        )
        widths = [number(row.get("width")) for row in curve.rows]
        made += ["", Sheet(f"ms a round by width, {curve.where}", Column("width", widths), [group])]
    fit = tune.get("fit")
    if fit:
        params = ", ".join(f"{name} = {number(value)}" for name, value in (fit.get("params") or {}).items())
        told = f"fitted where it is recommended: {fit.get('model')}; {params}"
        made += [Words(f"{told}; widths left out were off by {share(fit.get('rel_error'))}", "dim")]
    return made


def split(tune: Json) -> list[RenderableType]:
    """Where a round's time goes, in each arm."""
    arms, steps, spent = steps_of(tune)
    if not arms:
        return []
    totals = [sum(spent[arm].values()) for arm in arms]
    columns: list[Column | Bars] = [
        Column(plain_text(step), [number(spent[arm].get(step)) for arm in arms]) for step in steps
    ]
    group: Sequence[Column | Bars] = [
        Column("ms", [number(total) for total in totals]),
        Bars(totals, max(totals, default=0)),
    ]
    return ["", Sheet("time of a round", Column("arm", arms, text=True), [group, columns])]


def experts(tune: Json) -> list[RenderableType]:
    rows = tune.get("experts") or []
    if not rows:
        return []
    shares = [
        row["distinct"] / row["of"] if row.get("of") and row.get("distinct") is not None else None
        for row in rows
    ]
    group = present(
        [
            measured("experts", rows, "distinct"),
            measured("of", rows, "of"),
            measured("if routed alone", rows, "independent"),
            Bars(shares, 1.0),
            Column("", [share(value, "") for value in shares]),
        ]
    )
    return [
        "",
        Sheet(
            "distinct experts that a verify reads",
            Column("width", [number(r.get("width")) for r in rows]),
            [group],
        ),
    ]
