"""A result as one page: words, plots and tables, without a script and without anything from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from ddtool.bench.report import grids, plots, tune_grids, tune_plots, values
from ddtool.bench.report.svg import ARM_COLOURS
from ddtool.bench.report.values import Json


def page(result: Json, tune: Json | None) -> str:
    """The page, whole. The template escapes every text of a result; the drawings escape their own."""
    bench, tune = (None, result) if str(result.get("schema")).startswith("ddtool.tune/") else (result, tune)
    cells = (bench or {}).get("cells") or []
    arms = sorted(dict.fromkeys([*values.arms_of(cells), *values.arms_in(tune or {})]), key=values.arm_order)
    fingerprint, settings = grids.fingerprint(result.get("fingerprint") or {})
    return _template().render(
        head=result,
        style=_part("page.css"),
        spoilers=spoilers(bench, tune),
        objective=objective(bench),
        tuned=tuned(tune, arms),
        workloads=[workload(alike, arms, index) for index, alike in enumerate(values.workloads_of(cells))],
        overview=grids.overview(cells, arms) if len(cells) > 1 else None,
        lossless=grids.lossless_grids((bench or {}).get("lossless") or [], arms),
        fingerprint=fingerprint,
        settings=settings,
        slo=(bench or {}).get("slo"),
        measured=bool(cells),
    )


def spoilers(*results: Json | None) -> dict[str, list[str]]:
    """Taints and warnings of all results, each once."""
    return {
        kind: list(
            dict.fromkeys(
                values.plain_text(each) for result in results for each in (result or {}).get(kind) or []
            )
        )
        for kind in ("taints", "warnings")
    }


def objective(bench: Json | None) -> Json | None:
    """The objective's sentence, and whether it was met."""
    wanted = (bench or {}).get("objective")
    if not wanted:
        return None
    return {"met": bool(wanted.get("met")), "words": values.judged(wanted)}


def tuned(tune: Json | None, arms: list[str]) -> Json | None:
    """A tuning run's part of the page."""
    if tune is None:
        return None
    return {
        "advice": values.advice(tune) if tune.get("recommendation") else None,
        "why": values.plain_text(values.look(tune, "recommendation", "why") or ""),
        "overlay": values.look(tune, "recommendation", "overlay"),
        "loads": tune_grids.loads(tune, arms),
        "checks": tune.get("checks") or [],
        "plots": tune_plots.tune_plots(tune, arms),
        "grids": tune_grids.tune_grids(tune, arms),
        "run": tune.get("run"),
    }


def workload(cells: list[Json], arms: list[str], index: int) -> Json:
    """A workload's part of the page: its plots, and the tables of each of its cells."""
    return {
        "name": values.workload_name(cells[0]),
        "plots": plots.workload_plots(cells, arms, str(index)),
        "cells": [(values.heading(cell), grids.cell_grids(cell, arms)) for cell in cells],
    }


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(text=values.plain_text, lines=values.plain_lines, number=values.number)
    environment.globals.update(arm_colours=ARM_COLOURS)
    return environment.from_string(_part("page.html.j2"))


def _part(name: str) -> Any:
    return files("ddtool.bench.report").joinpath(name).read_text("utf-8")
