"""Verbs that run what is deployed: status, start, stop, restart, rollback, releases, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import DrainOpt, HostOpt, JsonOpt, ProfileOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.plan import Plan


def register(app: typer.Typer) -> None:
    for command in (status, start, stop, restart, rollback, releases, remove):
        app.command()(command)


def change(
    command: str,
    profile: str | None,
    host: str | None,
    make_plan: Callable[[Deployment], Plan],
    yes: bool,
    json: bool,
    drain: float = 0,
) -> None:
    """Settle, plan, show, ask, apply, report: the same for every verb that changes the service."""
    from ddtool.cli import options, output, plans, progress
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.drain import drained

    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        deployment.settle(progress.show)
        plan = drained(make_plan(deployment), drain)
        if not json:
            plans.show(plan, name, json)
        result: dict[str, Any] = {"ok": True, "unit": plan.unit}
        if not plan.nothing_to_do:
            output.confirm(f"{command} {plan.unit} on {name}?", yes)
            result = deployment.apply(plan, progress.show)
        if json:
            output.emit(
                command, {**result, "changed": not plan.nothing_to_do, "round_trips": deployment.round_trips}
            )
        else:
            plans.tell_drained(result)
            output.words(f"{command}: done", "green")


def start(
    profile: ProfileOpt = None, host: HostOpt = None, yes: YesOpt = False, json: JsonOpt = False
) -> None:
    """Start the current release and wait until it generates."""
    change("start", profile, host, lambda deployment: deployment.plan_start(), yes, json)


def stop(
    drain: DrainOpt = 0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Stop the service. It starts again at the next boot, or with `ddtool start`."""
    change("stop", profile, host, lambda deployment: deployment.plan_stop(), yes, json, drain)


def restart(
    drain: DrainOpt = 0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Stop and start the current release and wait until it generates."""
    change("restart", profile, host, lambda deployment: deployment.plan_restart(), yes, json, drain)


def rollback(
    to: Annotated[
        str | None, typer.Argument(help="Release id; default: the previous one.", show_default=False)
    ] = None,
    drain: DrainOpt = 0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Go back to the previous release, through the same gate as a deploy."""
    change("rollback", profile, host, lambda deployment: deployment.plan_rollback(to), yes, json, drain)


def remove(
    force: Annotated[
        bool, typer.Option("--force", help="Put patched files back even where somebody edited them since.")
    ] = False,
    drain: DrainOpt = 0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Take the service and everything of ddtool off the host; patched files go back to their baselines first."""
    change("remove", profile, host, lambda deployment: deployment.plan_remove(force=force), yes, json, drain)


def releases(profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False) -> None:
    """The releases kept on the host."""
    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment

    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        listed = deployment.agent.call("releases", unit_name=deployment.unit)
        if json:
            shown = [
                {
                    key: item.get(key)
                    for key in ("id", "role", "digest", "created_unix", "profile", "algorithm")
                }
                for item in listed
            ]
            output.emit("releases", {"host": name, "releases": shown, "round_trips": deployment.round_trips})
            return
        rows = [
            (
                item["id"],
                item["role"] or "",
                output.when(item["created_unix"]),
                item["algorithm"],
                item["wheel"] or "",
            )
            for item in listed
        ]
        output.stdout().print(
            output.table(f"{deployment.unit} on {name}", ("release", "", "made", "algorithm", "sglang"), rows)
        )


def status(profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False) -> None:
    """Release, unit, health, ranks, diagnostics and drift. Exit 7 when the service is not as wanted."""
    from ddtool.cli import options, output, statuses
    from ddtool.deploy.deployment import Deployment

    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        found = deployment.status()
        if json:
            output.emit(
                "status",
                {
                    **found,
                    "host": name,
                    "healthy": statuses.as_wanted(found),
                    "round_trips": deployment.round_trips,
                },
            )
        else:
            statuses.show(deployment.unit, name, found)
        if not statuses.as_wanted(found):
            raise typer.Exit(7)
