"""A run that goes on after it broke off, or its link did: what to type then, and what cannot be typed with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from ddtool.bench.store import Folder

# Parameters of `bench` and `tune`: how a run begins otherwise than as a new one on the host, of which one can be typed,
WAYS = {"resume", "attach", "from_run", "url"}
# and what it measures, which a run that is there already knows itself.
PLANNING = {
    *("arms", "workload", "concurrency", "rate", "tokens", "prompts", "repeats", "visits", "temperature"),
    *("seed", "ignore_eos", "warm_cache", "slo", "lossless", "context", "widths"),
}


def check(ctx: typer.Context) -> None:
    """Raises UsageError for two ways to begin, and for options that say what to measure beside a run that knows."""
    from ddtool.errors import UsageError

    ways, planned = _typed(ctx, WAYS), _typed(ctx, PLANNING)
    if len(ways) > 1:
        raise UsageError(
            f"{' and '.join(ways.values())} exclude each other", hint=f"ddtool {ctx.info_name} --help"
        )
    for name, option in ways.items():
        if planned and name != "url":
            by = option if ctx.params[name] is True else f"{option} {ctx.params[name]}"
            raise UsageError(
                f"{by} has the plan of its run, and takes no {', '.join(planned.values())}",
                hint=f"ddtool {ctx.info_name} {by} alone; without {option} a new run begins",
            )


def _typed(ctx: typer.Context, names: Collection[str]) -> dict[str, str]:
    """Those parameters that were typed → their options."""
    options = {item.name: item.opts[0] for item in ctx.command.params if item.name in names}
    sources = {name: ctx.get_parameter_source(name) for name in options}
    return {
        name: options[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"
    }


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
