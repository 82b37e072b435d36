"""A run that goes on after it broke off, or its link did: what to type then, and what cannot be typed with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from ddtool.bench.store import Folder

# By name of the parameter, of `bench` and of `tune`: a run has its plan from its beginning.
PLANNING = {
    *("arms", "workload", "concurrency", "rate", "tokens", "prompts", "repeats", "visits", "temperature"),
    *("seed", "ignore_eos", "warm_cache", "slo", "lossless", "context", "widths"),
}


def check_nothing_planned(ctx: typer.Context, by: str) -> None:
    """Raises UsageError for options that say what to measure, beside `by`, whose run says so itself."""
    from ddtool.errors import UsageError

    typed = [
        item.opts[0] for item in ctx.command.params if item.name in PLANNING and _is_typed(ctx, item.name)
    ]
    if typed:
        raise UsageError(
            f"{by} has the plan of its run, and takes no {', '.join(typed)}",
            hint=f"ddtool {ctx.info_name} {by} alone; without {by.split()[0]} a new run begins",
        )


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def kept(folder: Folder) -> str:
    return f"what was measured is kept; `{resuming(folder)}` goes on with the rest"


def resuming(folder: Folder) -> str:
    return "ddtool {} --resume {}".format(*going_on(folder))


def going_on(folder: Folder) -> tuple[str, str]:
    """The command that goes on with it, and by which run: what verifies a tuning run is resumed with that one."""
    how = folder.run["how"]
    name = str(how.get("verifies") or folder.path.name)
    return ("tune" if "tune" in how or "verifies" in how else "bench"), name


def attaching(folder: Folder) -> str:
    """The host goes on to the transaction's end, and `bench --attach` watches it; what comes then is tune's alone."""
    from ddtool.bench.host_run import ATTACH

    tunes = going_on(folder)[0] == "tune"
    return f"ddtool bench --attach shows how it goes; then {resuming(folder)}" if tunes else ATTACH
