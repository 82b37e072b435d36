"""`ddtool baseline …`: which bytes count as clean on a hand-patched tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import DryRunOpt, HostOpt, JsonOpt, ProfileOpt, YesOpt

if TYPE_CHECKING:
    from ddtool.deploy.deployment import Deployment

app = typer.Typer(help="Named baselines: the bytes that count as clean.", no_args_is_help=True)

WheelOpt = Annotated[
    str | None, typer.Option("--wheel", help="SGLang's wheel file, to diff against.", show_default=False)
]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="baseline")


@app.command(name="list")
def list_baselines(profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False) -> None:
    """Adopted baselines, managed files, files that differ from the wheel, and backups lying about."""
    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment

    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        found = deployment.agent.call("baseline.list", venv=chosen.engine.venv)
        if json:
            output.emit("baseline.list", {**found, "host": name, "round_trips": deployment.round_trips})
            return
    console = output.stdout()
    console.print(output.safe(f"{found['site']}: sglang {found['version']}"), style="bold")
    if found["unmanaged"]:
        console.print(output.safe(f"not verifiable: {found['unmanaged']}"))
    adopted = [
        (item["name"], len(item["files"]), item["adopted"]["who"], item["adopted"]["when"])
        for item in found["baselines"]
    ]
    if adopted:
        console.print(output.table("baselines", ("name", "files", "adopted by", "when"), adopted))
    if found["files"]:
        rows = [(item["file"], item["state"], item["baseline"]) for item in found["files"]]
        console.print(output.table("managed files", ("file", "state", "baseline"), rows))
    for file in found["differing"]:
        console.print(output.safe(f"differs from the wheel: {file}"))
    for item in found["backups"]:
        console.print(
            output.safe(f"backup: {item['file']}{' (the wheel’s bytes)' if item['is_wheel'] else ''}")
        )
    if not (adopted or found["files"] or found["differing"] or found["backups"]):
        console.print("every file is the wheel's")


@app.command()
def adopt(
    name: Annotated[str, typer.Argument(help="Name of the new baseline, such as my-fork.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files as sglang/…; default: all that differ.", show_default=False),
    ] = None,
    dry_run: DryRunOpt = False,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    yes: YesOpt = False,
    json: JsonOpt = False,
) -> None:
    """Show how the files differ from the wheel and record their bytes as clean: `restore` goes back to them."""
    from ddtool.cli.diag import How, change
    from ddtool.deploy.session import operator

    def request(deployment: Deployment) -> dict[str, Any]:
        venv = deployment.profile.engine.venv
        if not json:
            found = deployment.agent.call("baseline.show", deadline_s=60.0, venv=venv)
            listed = [item for item in found["files"] if not files or item["file"] in files]
            if listed:
                print_files(listed)
        return {"op": "adopt", "venv": venv, "name": name, "files": files or None, "who": operator()}

    change("baseline adopt", request, profile, host, How(False, (), dry_run, yes, json))


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="A baseline; default: what adopt would take.", show_default=False)
    ] = None,
    wheel: WheelOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """A baseline's diff against the wheel, and debugging lines left over in it."""
    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.wheels import wanted_from

    chosen, where = options.selected(profile, None, host)
    with Deployment(chosen, where) as deployment:
        venv = chosen.engine.venv
        files = wanted_from(wheel, deployment.agent, venv) if wheel else None
        found = deployment.agent.call(
            "baseline.show", deadline_s=60.0, venv=venv, name=name, wheel_files=files
        )
        if json:
            output.emit("baseline.show", {**found, "host": where, "round_trips": deployment.round_trips})
            return
    print_files(found["files"])


def print_files(files: Sequence[Mapping[str, Any]]) -> None:
    """Each with its diff against the wheel and the debugging lines left in it."""
    from ddtool.cli import output, plans

    console = output.stdout()
    for item in files:
        console.print(output.safe(f"{item['file']}: {item['state']}, sha256 {item['sha256']}"), style="bold")
        for line in (item["diff"] or "").splitlines():
            console.print(f"  {output.safe(line)}", style=plans.diff_colour(line), soft_wrap=True)
        if item["no_diff"]:
            console.print(f"  {item['no_diff']}")
        for mark in item["markers"]:
            console.print(output.safe(f"  left over at line {mark['line']}: {mark['text']}"), style="yellow")
    if not files:
        console.print("nothing differs from the wheel")
