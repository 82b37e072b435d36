"""`ddtool diag …` and `ddtool restore`: instrumented patches on and off, and back to clean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ddtool.cli import diag_run, diag_show, typed
from ddtool.cli.options import (
    AlsoOpt,
    DrainOpt,
    DryRunOpt,
    HostOpt,
    JsonOpt,
    ProfileOpt,
    UnitOpt,
    YesOpt,
)

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment

app = typer.Typer(
    help="Diagnostics: instrumented patches, proven clean, live and gone.", no_args_is_help=True
)

RestartOpt = Annotated[
    bool, typer.Option("--restart", help="Restart the service once, so that every rank loads it.")
]
ForceOpt = Annotated[
    bool, typer.Option("--force", help="Overwrite foreign edits; a copy of them is kept on the host.")
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="diag")
    root.command()(restore)


@app.command(name="list")
def list_patches(json: JsonOpt = False) -> None:
    """The diagnostics that this ddtool ships, with the releases each was checked on."""
    from ddtool.cli import output
    from ddtool.diagnostics.definition import load_all

    patches = load_all()
    if json:
        output.emit("diag.list", {"patches": [diag_show.about(patch) for patch in patches]})
        return
    rows = [
        (
            patch.name,
            patch.kind,
            f"{patch.expires} days" if patch.expires else "never",
            ", ".join(patch.releases),
            patch.summary,
        )
        for patch in patches
    ]
    columns = ("name", "kind", "expires", "releases", "what it shows")
    output.stdout().print(output.table(None, columns, rows))


@app.command()
def enable(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Diagnostics to put into the installed SGLang.")],
    restart: RestartOpt = False,
    drain: DrainOpt = 0,
    why: Annotated[str, typer.Option("--why", help="Kept in the host's ledger.")] = "",
    force: ForceOpt = False,
    also_affects: AlsoOpt = None,
    dry_run: DryRunOpt = False,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Put diagnostics into the installed SGLang. Running processes keep the old code until a restart."""
    from ddtool.deploy.toggle import toggle_request
    from ddtool.diagnostics.definition import load

    typed.needs(ctx, "restart", "drain")
    patches = [load(name).to_json() for name in names]

    def request(deployment: Deployment) -> dict[str, Any]:
        return toggle_request(deployment.profile.engine.venv, enable=patches, why=why, force=force)

    change("diag enable", request, profile, host, How(restart, also_affects or (), dry_run, yes, json, drain))


@app.command()
def disable(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Diagnostics to take out again.")],
    restart: RestartOpt = False,
    drain: DrainOpt = 0,
    force: ForceOpt = False,
    also_affects: AlsoOpt = None,
    dry_run: DryRunOpt = False,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Take diagnostics out; files with none left are their baseline again, byte for byte."""
    from ddtool.deploy.toggle import toggle_request

    typed.needs(ctx, "restart", "drain")

    def request(deployment: Deployment) -> dict[str, Any]:
        return toggle_request(deployment.profile.engine.venv, disable=names, force=force)

    change(
        "diag disable", request, profile, host, How(restart, also_affects or (), dry_run, yes, json, drain)
    )


class How(NamedTuple):
    """The options that enable, disable, restore and adopt share."""

    restart: bool
    also_affects: Sequence[str]
    dry_run: bool
    yes: bool
    json: bool
    drain: float = 0


def change(
    kind: str,
    make_request: Callable[[Deployment], dict[str, Any]],
    profile: str | None,
    host: str | None,
    how: How,
) -> None:
    """Preview, show, ask, apply: the same for enable, disable, restore and adopt."""
    from ddtool.cli import options, output, plans, progress
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.drain import drained
    from ddtool.diagnostics import consent

    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        request = make_request(deployment)
        plan = deployment.plan_toggle(
            kind,
            request,
            restart=how.restart,
            also_affects=how.also_affects,
            on_event=None if how.dry_run else progress.show,
        )
        plan = drained(plan, how.drain)
        if how.dry_run or not how.json:
            plans.show(plan, name, how.json, deployment.round_trips)
        plans.show_unknown(plan.unknown)
        if how.dry_run:
            return
        result: dict[str, Any] = {"ok": True, "unit": plan.unit}
        if plan.steps:
            unchecked = "The patch was not checked on the functions above. " if plan.unknown else ""
            output.confirm(f"{unchecked}{kind} on {name}?", how.yes)
            result = deployment.apply(plan, progress.show, why=request.get("why"))
        state = deployment.diagnostics()
        consent.check_as_recorded(state)
        if how.json:
            output.emit(
                kind.replace(" ", "."),
                {
                    **result,
                    "changed": bool(plan.steps),
                    "state": state,
                    "round_trips": deployment.round_trips,
                },
            )
        else:
            plans.tell_drained(result)
            tell(kind, result, state, changed=bool(plan.steps))


def tell(kind: str, result: Mapping[str, Any], state: Mapping[str, Any], *, changed: bool) -> None:
    """What became of each file, and whether the running ranks still have other code."""
    from ddtool.cli import output
    from ddtool.diagnostics import view

    for item in result.get("diagnostics") or []:
        patches = ", ".join(item["patches"]) or "no patch"
        output.words(
            f"{item['file']}: {item['before']} → {item['after']} ({patches}), sha256 {item['sha256'][:16]}…"
        )
    output.words(f"{kind}: {'done' if changed else 'nothing to do'}; {view.headline(state)}", "green")


@app.command()
def status(
    unit: UnitOpt = None, profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False
) -> None:
    """Each enabled diagnostic: on disk, loaded by which ranks of the running unit, and in which its code has run."""
    from ddtool.cli import options, output
    from ddtool.diagnostics import definition, view

    with options.viewed(profile, host, unit) as viewing:
        state = viewing.diagnostics()
        outdated = view.outdated(state, definition.shas(patch["name"] for patch in state["patches"]))
        if json:
            about = {"host": viewing.host, "outdated": outdated, "round_trips": viewing.round_trips}
            output.emit("diag.status", {**state, **about})
            return
        console = output.stdout()
        console.print(output.safe(view.headline(state)), style="bold")
        if state["patches"]:
            columns = ("diagnostic", "on disk", "loaded", "reached", "why")
            console.print(output.table(None, columns, view.patch_rows(state)))
        for patch in outdated:
            update = f"enabled by another version of ddtool; `ddtool diag enable {patch}` updates it"
            console.print(output.safe(f"{patch} was {update}"))
        for patch, ranks in view.leftover_rows(state):
            console.print(output.safe(f"{patch} is off, but {ranks} still run it: restart to be rid of it"))
        for kind, files in view.by_group(state["files"]).items():
            console.print(output.safe(f"{kind}: {', '.join(files)}"))


def restore(
    ctx: typer.Context,
    to: Annotated[
        str, typer.Option("--to", help="baseline, wheel, or an adopted baseline's name.")
    ] = "baseline",
    wheel: Annotated[
        str | None,
        typer.Option(
            "--wheel", help="SGLang's wheel file, for bytes that the host has lost.", show_default=False
        ),
    ] = None,
    restart: RestartOpt = False,
    drain: DrainOpt = 0,
    force: ForceOpt = False,
    also_affects: AlsoOpt = None,
    dry_run: DryRunOpt = False,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Every managed file back to its recorded baseline, proven by hash."""
    from ddtool.deploy.wheels import wanted_from

    typed.needs(ctx, "restart", "drain")

    def request(deployment: Deployment) -> dict[str, Any]:
        venv = deployment.profile.engine.venv
        files = wanted_from(wheel, deployment.agent, venv) if wheel else None
        return {"op": "restore", "venv": venv, "to": to, "wheel_files": files, "force": force}

    change("restore", request, profile, host, How(restart, also_affects or (), dry_run, yes, json, drain))


app.command()(diag_show.show)
app.command()(diag_run.run)
