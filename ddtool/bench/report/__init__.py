"""Reports of `bench`, `bench compare` and `tune`: for the terminal, and as one page for a browser.

Both are made from the result alone, as `--json` prints it, and say what it lacks by leaving it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtool.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ddtool.bench.report.values import Json


def tables(result: Json) -> list[RenderableType]:
    """What a terminal shows of a `ddtool.bench/1`, `ddtool.bench.compare/1` or `ddtool.tune/1`, to be printed in order.

    Each fits the console that prints it: in a narrow one columns stand below each other, and in one of the C locale
    all is ASCII. Names and taints are data: no markup, no control characters.
    """
    from ddtool.bench.report.bench_tables import bench_tables
    from ddtool.bench.report.compare_tables import compare_tables
    from ddtool.bench.report.tune_tables import tune_tables

    made = {"ddtool.bench.compare/1": compare_tables, "ddtool.tune/1": tune_tables}
    return made.get(str(result.get("schema")), bench_tables)(result)


def check_html() -> None:
    """Raise UsageError where `html` could not be made here. Ask before a run whose report is wanted."""
    from importlib.util import find_spec

    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a report needs {' and '.join(missing)}",
            why="its plots are drawn by matplotlib, its page is a Jinja template; both are an extra",
            hint="pip install 'ddtool[report]'",
        )


def html(result: Json, tune: Json | None = None) -> str:
    """One self-contained page about a run, and about the tuning run beside it.

    Raises UsageError without the extra `report`.
    """
    check_html()
    from ddtool.bench.report.page import page

    return page(result, tune)
