"""`ddtool diag run`: one experiment with a diagnostic, after which the host is as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import AlsoOpt, DrainOpt, DryRunOpt, HostOpt, JsonOpt, ProfileOpt, SetOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.plan import Plan

COLOURS = {"confirmed": "bold green", "refuted": "bold green", "inconclusive": "bold yellow"}


NameArg = Annotated[
    str | None, typer.Argument(help="The diagnostic; not needed with --attach.", show_default=False)
]
RequestOpt = Annotated[
    str | None,
    typer.Option(
        "--request", metavar="FILE", help="JSON body of the request to send; default: a health prompt."
    ),
]
LoadOpt = Annotated[int, typer.Option("--load", metavar="N", min=1, help="Send N requests at once.")]
TimeoutOpt = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds to wait for the answers, once it is ready.")
]
ForceOpt = Annotated[
    bool, typer.Option("--force", help="Overwrite foreign edits; they are put back at the end.")
]
AttachOpt = Annotated[
    bool, typer.Option("--attach", help="Watch the experiment that runs on the host, or its last one.")
]


def run(
    ctx: typer.Context,
    name: NameArg = None,
    request: RequestOpt = None,
    load: LoadOpt = 1,
    timeout: TimeoutOpt = 120.0,
    overrides: SetOpt = None,
    drain: DrainOpt = 0,
    force: ForceOpt = False,
    also_affects: AlsoOpt = None,
    dry_run: DryRunOpt = False,
    attach: AttachOpt = False,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Enable a diagnostic, start, provoke, watch, and put everything back: did it fire, and what does that mean?

    The service starts as the profile says, without restarts and without rollback; also a configuration that was never
    deployed, because it crashes. Ctrl-C ends the experiment early. Exit 0 whatever the outcome.
    """
    from ddtool.cli import options, output, plans, progress, typed
    from ddtool.deploy import experiment
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.drain import drained
    from ddtool.diagnostics.definition import load as load_patch
    from ddtool.errors import UsageError

    typed.only(ctx, "attach", "profile", "host", "overrides", why="the experiment has its plan")
    if name is None and not attach:
        raise UsageError("name the diagnostic, or use --attach", hint="ddtool diag list")
    patch = load_patch(name) if name is not None else None
    chosen, where = options.selected(profile, overrides, host)
    with Deployment(chosen, where) as deployment:
        if patch is None:
            result = experiment.attach(deployment.agent, progress.show)
            if result["kind"] != experiment.KIND:
                raise UsageError(
                    f"what this host did last is not an experiment: {result['kind']}", hint="ddtool status"
                )
            report(deployment, result, json)
            return
        asked = experiment.requests(chosen, request, load)
        if not dry_run:
            deployment.settle(progress.show)
        plan = deployment.plan_experiment(
            patch, asked=asked, timeout_s=timeout, force=force, also_affects=also_affects or ()
        )
        plan = drained(plan, drain)
        if dry_run or not json:
            plans.show(plan, where, json, deployment.round_trips)
        plans.show_unknown(plan.unknown)
        if dry_run:
            return
        output.confirm(f"Make this experiment on {where}?", yes)
        report(deployment, carried_out(deployment, plan), json)


def carried_out(deployment: Deployment, plan: Plan) -> dict[str, Any]:
    """The result. Ctrl-C has the host end the experiment and put everything back before ddtool leaves."""
    from ddtool.cli import output, progress
    from ddtool.deploy import apply, experiment

    transaction = experiment.document(plan)
    try:
        return experiment.run(deployment.agent, transaction, progress.show)
    except KeyboardInterrupt:
        output.words("interrupted: the host ends the experiment and puts everything back", "yellow")
        agent = deployment.reconnect()  # the old connection may be in the middle of a frame
        if apply.stop(agent, transaction["id"]):
            experiment.attach(agent, progress.show, transaction["id"])
        raise


def report(deployment: Deployment, result: dict[str, Any], json: bool) -> None:
    """The outcome, then the error if the host could not be put back; to a program the error has the outcome."""
    from ddtool.cli import output, plans, progress
    from ddtool.deploy import crashes
    from ddtool.deploy.apply import raise_for
    from ddtool.deploy.experiment import with_verdict
    from ddtool.diagnostics import consent
    from ddtool.errors import DdtoolError

    seen = result.get("experiment")
    if seen is not None:
        crashes.tell(deployment.agent, deployment.unit, deployment.profile, seen, progress.show)
        seen = with_verdict(seen)
        if not json:
            tell(seen)
    try:
        raise_for(result)
        consent.check_as_recorded(deployment.diagnostics())
    except DdtoolError as error:
        error.found = {"experiment": seen} if seen is not None else {}
        raise
    if json:
        about = {"unit": deployment.unit, "host": deployment.host, "round_trips": deployment.round_trips}
        output.emit("diag.run", {**about, "ok": True, **(seen or {}), "put_back": plans.put_back(result)})
    else:
        output.words(f"put back: {plans.put_back(result)}, every managed file as before", "green")


def tell(seen: Mapping[str, Any]) -> None:
    from ddtool.cli import output
    from ddtool.diagnostics import view

    console = output.stdout()
    style = COLOURS[seen["conclusion"]]
    console.print(output.safe(view.outcome_line(seen)), style=style, soft_wrap=True)
    for line in view.outcome_details(seen):
        console.print(output.safe(line), soft_wrap=True)
    if seen["events"]:
        columns = ("event", "worker", "rank", "fields")
        console.print(output.table(None, columns, view.event_rows(seen["events"])))
