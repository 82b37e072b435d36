"""Verbs that run what is deployed: status, start, stop, restart, rollback, releases, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import DrainOpt, HostOpt, JsonOpt, ProfileOpt, UnitOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.plan import Plan


def register(app: typer.Typer) -> None:
    for command in (status, start, stop, restart, rollback, releases, remove):
        app.command()(command)
    app.command("releases diff")(releases_diff)


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
    restore_unit: Annotated[
        bool | None,
        typer.Option(
            "--restore-unit/--no-restore-unit",
            help="Of a unit that was taken over: put the original back, or delete what is kept of it.",
            show_default=False,
        ),
    ] = None,
    drain: DrainOpt = 0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Take the service and everything of ddtool off the host; patched files go back to their baselines first."""

    def plan(deployment: Deployment) -> Plan:
        return deployment.plan_remove(force=force, restore_unit=restore_unit)

    change("remove", profile, host, plan, yes, json, drain)


def releases(
    unit: UnitOpt = None, profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False
) -> None:
    """The releases kept on the host. What two of them differ in: `ddtool releases diff A B`."""
    from ddtool.cli import options, output

    with options.viewed(profile, host, unit) as viewing:
        listed = viewing.releases()
        if json:
            keys = ("id", "role", "digest", "created_unix", "profile", "algorithm")
            shown = [{key: item.get(key) for key in keys} for item in listed]
            about = {"host": viewing.host, "unit": viewing.unit, "round_trips": viewing.round_trips}
            output.emit("releases", {**about, "releases": shown})
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
        columns = ("release", "", "made", "algorithm", "sglang")
        output.stdout().print(output.table(f"{viewing.unit} on {viewing.host}", columns, rows))


def releases_diff(
    before: Annotated[str, typer.Argument(help="Release id, the beginning of one, `current` or `previous`.")],
    after: Annotated[str, typer.Argument(help="The other one.")],
    unit: UnitOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """What two releases differ in: unit, flags, environment, engine, patches, wheel; secrets by fingerprint only."""
    from ddtool.cli import options, output, plans
    from ddtool.deploy.release_diff import difference

    with options.viewed(profile, host, unit) as viewing:
        old, new = viewing.contents(before, after)
        found = difference(old, new)
        if json:
            about = {"host": viewing.host, "unit": viewing.unit, "before": old["id"], "after": new["id"]}
            shown = [{"part": item.what, "detail": item.detail, "diff": item.diff} for item in found]
            output.emit("releases.diff", {**about, "differs": shown, "round_trips": viewing.round_trips})
            return
    output.stdout().print(f"{old['id']} → {new['id']} of {viewing.unit}", style="bold")
    plans.show_changes(found)
    if not found:
        output.words("nothing differs")


def status(
    unit: UnitOpt = None, profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False
) -> None:
    """Release, unit, health, ranks, diagnostics and drift. Exit 7 when the service is not as wanted.

    Whoever did not deploy it needs no profile: `--host H` alone shows the host's only service, or their names.
    """
    from ddtool.cli import options, output, statuses

    with options.viewed(profile, host, unit) as viewing:
        found = viewing.status()
        good = statuses.as_wanted(found)
        if json:
            about = {"host": viewing.host, "name": viewing.unit, "healthy": good}
            output.emit("status", {**found, **about, "round_trips": viewing.round_trips})
        else:
            statuses.show(viewing.unit, viewing.host, found)
        if not good:
            raise typer.Exit(7)
