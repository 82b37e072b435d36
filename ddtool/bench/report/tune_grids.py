"""The numbers of a tuning run as tables for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddtool.bench.report.grids import Grid, Header, grid, rows_grid
from ddtool.bench.report.values import (
    Json,
    budget_curves,
    difference,
    plain_text,
    steps_of,
    verify_name,
    where_of,
)


def tune_grids(tune: Json, order: Sequence[str]) -> list[Grid]:
    """Everything a `ddtool.tune/1` has."""
    made = [
        *curves(tune, order),
        verify(tune),
        fit(tune),
        acceptance(tune),
        split(tune, order),
        experts(tune),
    ]
    return [each for each in made if each is not None]


def curves(tune: Json, order: Sequence[str]) -> Iterator[Grid | None]:
    for curve in budget_curves(tune):
        arms = curve.arms
        predicted = [curve.predicted.get(arm) for arm in arms]
        found = [curve.measured.get(arm) for arm in arms]
        apart = [difference(one, other) for one, other in zip(predicted, found, strict=True)]
        yield grid(
            f"tok/s, {curve.where}",
            "arm",
            arms,
            order,
            [
                (Header("", "predicted"), predicted),
                (Header("", "measured"), found),
                (Header("", "passes"), [curve.behind.get(arm) for arm in arms]),
                (
                    Header("", "predicted to measured", places=3),
                    [None if each is None else 1 + each for each in apart],
                ),
            ],
        )


def verify(tune: Json) -> Grid | None:
    rows = tune.get("verify") or []
    columns = {
        "workload": "workload",
        "concurrency": "concurrency",
        "context": "context",
        "round_ms": "round",
        "verify_ms": verify_name(rows),
        "fitted_ms": "fitted",
        "draft_ms": "draft",
        "tree_ms": "tree",
    }
    return rows_grid("ms a round by width", rows, [], "width", columns)


def fit(tune: Json) -> Grid | None:
    found = tune.get("fit") or {}
    params = dict(found.get("params") or {})
    cells = {**params, "relative error": found.get("rel_error")}
    return grid(
        "The model fitted to the round, where it is recommended",
        "model",
        [str(found.get("model", ""))],
        [],
        [(Header("", plain_text(name)), [value]) for name, value in cells.items()],
    )


def acceptance(tune: Json) -> Grid | None:
    rows = [{**row, **(row.get("judged") or {})} for row in tune.get("acceptance") or []]
    columns = {
        "topk": "topk",
        "predicted": "predicted",
        "measured": "measured",
        "error": "±",
        "off": "off by",
        "within": "good to",
        "alike": "same text",
        "answers": "of answers",
    }
    return rows_grid("Tokens a round by budget (0: the chain)", rows, [], "budget", columns)


def split(tune: Json, order: Sequence[str]) -> Grid | None:
    arms, steps, spent = steps_of(tune)
    columns = [(Header("", plain_text(step)), [spent[arm].get(step) for arm in arms]) for step in steps]
    return grid("Time of a round, ms", "arm", arms, order, columns)


def loads(tune: Json, order: Sequence[str]) -> Grid | None:
    """What to use at each load."""
    rows = tune.get("by_load") or []
    columns = {"arm": "use", "best_tree": "best tree", "why": "because"}
    return grid(
        "What to use by load",
        "load",
        [str(where_of(row)) for row in rows],
        order,
        [(Header("", name), [row.get(key) for row in rows]) for key, name in columns.items()],
    )


def experts(tune: Json) -> Grid | None:
    rows = tune.get("experts") or []
    columns = {"distinct": "distinct", "independent": "if routed alone", "bound": "only bounded", "of": "of"}
    return rows_grid("Distinct experts that a verify reads", rows, [], "width", columns)
