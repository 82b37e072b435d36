"""A result as one page: words, plots and tables, without a script and without anything from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from ddtool.bench.report import plots, values
from ddtool.bench.report.values import Json


def page(result: Json, tune: Json | None) -> str:
    """The page, whole. Text of a result is escaped by the template; the drawings escape their own."""
    arms = values.arms_of(result.get("cells") or [])
    return template().render(
        result=result,
        tune=tune,
        arms=arms,
        plots=plots.bench_plots(result, arms),
        style=style(),
        workloads=values.workloads_of(result.get("cells") or []),
    )


@cache
def template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        text=values.plain_text,
        number=values.number,
        share=values.share,
        times=values.times,
        described=values.described,
    )
    environment.globals.update(look=values.look, arms_of=values.arms_of, ratio_of=values.ratio_of)
    return environment.from_string(part("page.html.j2"))


def style() -> str:
    return part("page.css")


def part(name: str) -> str:
    return files("ddtool.bench.report").joinpath(name).read_text("utf-8")
