"""`ddtool deploy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileArg, SetOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment


def register(app: typer.Typer) -> None:
    app.command()(deploy)


def deploy(
    ctx: typer.Context,
    profile: ProfileArg = None,
    host: HostOpt = None,
    overrides: SetOpt = None,
    dry_run: DryRunOpt = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Plan without the host, from assumptions or --facts.")
    ] = False,
    facts: Annotated[
        str | None, typer.Option("--facts", help="With --offline: a file with a host's facts.")
    ] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Watch the transaction that runs on the host, or its last one.")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Take over a unit of that name that is not ddtool's: its process goes on until the next restart, and "
            "`remove --restore-unit` gives it back.",
        ),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="After a takeover: restart now, so that the release runs.")
    ] = False,
    drain: DrainOpt = 0,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Put a profile on its host: plan, confirm, apply, and wait until it really generates."""
    from ddtool.cli import options, output, plans, progress, typed

    typed.only(ctx, "offline", "profile", "overrides", "dry_run", "facts", why="no host is asked")
    typed.only(ctx, "attach", "profile", "host", "overrides", why="the transaction has its plan")
    typed.needs(ctx, "offline", "facts")
    if offline:
        from ddtool.deploy.offline import plan_offline

        plans.show(plan_offline(options.profile_of(profile, overrides), facts), "no host (offline)", json)
        return
    chosen, name = options.selected(profile, overrides, host)
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.drain import drained

    with Deployment(chosen, name) as deployment:
        if attach:
            report(deployment, deployment.attach(progress.show), json)
            return
        if not dry_run:
            deployment.settle(progress.show)
        plan = drained(deployment.plan_deploy(take_over=take_over, restart=restart), drain)
        if dry_run or not json:
            plans.show(plan, name, json, deployment.round_trips)
        if dry_run:
            return
        result: dict[str, Any] = {"ok": True, "unit": plan.unit, "changed": False}
        if not plan.nothing_to_do:
            output.confirm(f"Apply this to {name}?", yes)
            result = {**deployment.apply(plan, progress.show), "changed": True}
        options.make_current(profile)
        report(deployment, {**result, "release": plan.release}, json)


def report(deployment: Deployment, result: dict[str, Any], json: bool) -> None:
    from ddtool.cli import output, plans

    if json:
        output.emit("deploy", {**result, "host": deployment.host, "round_trips": deployment.round_trips})
        return
    plans.tell_drained(result)
    gate = result.get("gate")
    if gate:
        length = f", accept length {gate['accept_length']}" if gate["accept_length"] else ""
        output.words(f"{gate['completions']} completions answered{length}. The first one:", "green")
        output.stdout().print(output.safe(gate["sample"]), soft_wrap=True)
    elif result.get("changed"):
        output.words(
            "Taken over: the running process goes on, and `ddtool restart` runs the release.", "green"
        )
    elif not result.get("changed", True):
        output.words("Nothing to do: the release is installed and nothing differs.", "green")
