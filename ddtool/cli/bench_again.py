"""A run that goes on after it broke off, or its link did: what to type then, and what cannot be typed with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtool.cli import typed

if TYPE_CHECKING:
    import typer

    from ddtool.bench.store import Folder

# Parameters of `bench` that say what is measured of an arm.
MEASURED = (
    *("workload", "concurrency", "rate", "tokens", "prompts", "repeats", "visits", "temperature"),
    *("seed", "ignore_eos", "warm_cache", "slo", "lossless"),
)
ARMS_RUN = "the arms are the servers named, which run and go on"
HAS_PLAN = "the run has its plan"


def check(ctx: typer.Context) -> None:
    """Raises UsageError for what `bench` and `tune` would ignore when they begin otherwise than with a new run on the
    host."""
    typed.only(ctx, "attach", "profile", "host", "overrides", "report", why=HAS_PLAN)
    typed.only(ctx, "from_run", "profile", "overrides", "report", "out", why=f"{HAS_PLAN}; no host is asked")
    there = ("profile", "host", "overrides", "drain", "dry_run")
    typed.only(ctx, "resume", *there, "report", "out", why=HAS_PLAN)
    typed.only(ctx, "url", *MEASURED, "profile", "overrides", "dry_run", "report", why=ARMS_RUN)
    if ctx.params.get("url"):
        typed.needs(ctx, "profile", "overrides")


def kept(folder: Folder) -> str:
    return f"what was measured is kept; `{resuming(folder)}` goes on with the rest"


def resuming(folder: Folder) -> str:
    return "ddtool {} --resume {}".format(*going_on(folder))


def going_on(folder: Folder) -> tuple[str, str]:
    """The command that goes on with it, and by which run: what verifies a tuning run is resumed with that one."""
    tuning = folder.tuning
    return ("bench", folder.path.name) if tuning is None else ("tune", tuning)


def attaching(folder: Folder) -> str:
    """The host goes on to the transaction's end, and `bench --attach` watches it; what comes then is tune's alone."""
    from ddtool.bench.host_run import ATTACH

    tunes = going_on(folder)[0] == "tune"
    return f"ddtool bench --attach shows how it goes; then {resuming(folder)}" if tunes else ATTACH
