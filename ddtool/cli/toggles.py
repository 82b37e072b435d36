"""What `diag`, `restore` and `baseline adopt` share: preview, consent, transaction, and how the ranks stand after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli import output

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.plan import Plan

RestartOpt = Annotated[
    bool, typer.Option("--restart", help="Restart once, so that every rank loads the files.")
]
ForceOpt = Annotated[bool, typer.Option("--force", help="Replace foreign edits; a copy is kept on the host.")]
AlsoOpt = Annotated[
    list[str] | None,
    typer.Option("--also-affects", metavar="UNIT", help="Another unit that runs from the same environment."),
]
DryRunOpt = Annotated[bool, typer.Option("--dry-run", help="Show the plan and touch nothing.")]
WheelOpt = Annotated[
    Path | None,
    typer.Option(
        "--wheel",
        metavar="FILE",
        help="The release wheel, where the host lacks its bytes.",
        show_default=False,
    ),
]


def change(
    deployment: Deployment,
    kind: str,
    request: Mapping[str, Any],
    *,
    yes: bool,
    json: bool,
    dry_run: bool = False,
    restart: bool = False,
    also_affects: Sequence[str] | None = None,
    why: str | None = None,
) -> None:
    """Show what the request does, ask, carry it out, and check on the host that it is done."""
    from ddtool.cli import plans, progress
    from ddtool.deploy.toggle import plan_toggle
    from ddtool.diagnostics import consent

    if not dry_run:
        deployment.settle(progress.show)
    preview = deployment.preview(dict(request))
    consent.check_affected(preview, deployment.unit, also_affects or ())
    agreed = consent.confirmed(request, preview)
    plan = plan_toggle(kind, deployment.unit, agreed, preview, deployment.facts, restart=restart)
    if dry_run or not json:
        plans.show(plan, deployment.host, json, deployment.round_trips)
    show_unknown(preview)
    if dry_run:
        return
    result: dict[str, Any] = {"ok": True}
    if not plan.nothing_to_do:
        output.confirm(question(plan, preview, deployment.host), yes)
        result = deployment.apply(plan, progress.show, why)
    report(deployment, kind, plan, preview, result, json)


def question(plan: Plan, preview: Mapping[str, Any], host: str) -> str:
    if preview["unknown"]:
        return f"The patch was not checked on the functions above. {plan.kind} on {host} all the same?"
    return f"{plan.kind} on {host}?"


def show_unknown(preview: Mapping[str, Any]) -> None:
    for item in preview["unknown"]:
        output.words(
            f"{item['patch']} was not checked on this version of {item['function']} in {item['file']}:",
            "yellow",
        )
        for line in item["source"].splitlines():
            output.words(f"    {line}")


def report(
    deployment: Deployment,
    kind: str,
    plan: Plan,
    preview: Mapping[str, Any],
    result: Mapping[str, Any],
    json: bool,
) -> None:
    """Files with their hashes as the host finds them now, and whether a restart is still needed."""
    from ddtool.diagnostics import view

    state = deployment.agent.call("diag.state", venv=deployment.profile.engine.venv, unit=deployment.unit)
    if json:
        shown = {"changed": not plan.nothing_to_do, "files": preview["summary"], "state": state}
        output.emit(kind.replace(" ", "-"), {**result, **shown, "round_trips": deployment.round_trips})
        return
    for row in preview["summary"]:
        output.stdout().print(f"{row['sha256']}  {output.safe(row['file'])}  {row['after']}", soft_wrap=True)
    output.words(f"{kind}: done; {view.headline(state)}", "green")


def wheel_files(deployment: Deployment, wheel: Path | None) -> dict[str, str] | None:
    """From the operator's wheel the files whose clean bytes the host lacks."""
    from ddtool.diagnostics import wheelfile

    if wheel is None:
        return None
    return wheelfile.contents(
        wheel, deployment.agent.call("baseline.wanted", venv=deployment.profile.engine.venv)
    )
