"""`ddtool wheelhouse`: wheels for hosts without internet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddtool.cli.options import JsonOpt, ProfileArg, SetOpt

if TYPE_CHECKING:
    from ddtool.deploy.wheelhouse import Wheelhouse

app = typer.Typer(
    help="Wheels of an environment, collected on this machine for a host that cannot fetch them.",
    no_args_is_help=True,
)

FolderArg = Annotated[str, typer.Argument(help="The wheelhouse.")]
MIB = 2**20


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="wheelhouse")


@app.command()
def build(
    profile: ProfileArg = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="HOST|FACTS.json",
            help="Whom it must run on: a host for ssh, or a file that `ddtool doctor --json` printed there; default: "
            "DDTOOL_HOST or the profile's binding.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="DIR", help="Default: engine.wheelhouse, else ./wheelhouse.", show_default=False
        ),
    ] = None,
    requirements: Annotated[
        str | None,
        typer.Option(
            "--requirements",
            "-r",
            metavar="FILE",
            help="What to collect; default: engine.requirements, else sglang of engine.release.",
            show_default=False,
        ),
    ] = None,
    no_deps: Annotated[
        bool, typer.Option("--no-deps", help="Exactly the requirements, nothing that they need.")
    ] = False,
    overrides: SetOpt = None,
    json: JsonOpt = False,
) -> None:
    """Collect the wheels that a profile's SGLang needs on a host: for its Python, machine and C library, with the pip
    of this machine and where that looks. Then `--set engine.install=managed --set engine.wheelhouse=DIR`.
    """
    from pathlib import Path

    from ddtool.cli import options, output
    from ddtool.deploy import wheelhouse_build
    from ddtool.deploy.requirements import wanted
    from ddtool.deploy.wheelhouse_for import target_of

    chosen = options.profile_of(profile, overrides)
    where = for_ or options.host_of(profile, None)
    target = target_of(where, chosen)
    source = requirements or chosen.engine.requirements
    requested = wanted(source) if source else [f"sglang=={chosen.engine.release}"]
    folder = Path(out or chosen.engine.wheelhouse or "wheelhouse").expanduser()
    house = wheelhouse_build.build(
        requested, target, folder, with_dependencies=not no_deps, progress=output.words
    )
    _show(house, json)


@app.command()
def show(folder: FolderArg, json: JsonOpt = False) -> None:
    """What it holds and whom it is for. The wheels themselves are not read."""
    from ddtool.deploy import wheelhouse

    _show(wheelhouse.read(folder), json)


@app.command()
def verify(folder: FolderArg, json: JsonOpt = False) -> None:
    """Read every wheel and compare its sha256. Exit 8 when one is not what was collected."""
    from ddtool.cli import output
    from ddtool.deploy import wheelhouse

    house = wheelhouse.read(folder)
    found = list(house.problems())
    if json:
        output.emit("wheelhouse.verify", {"folder": str(house.folder), "ok": not found, "problems": found})
    for problem in [] if json else found:
        output.words(problem, "red")
    if found:
        raise typer.Exit(8)
    output.words(f"{len(house.wheels)} wheels, every byte as collected", "green")


def _show(house: Wheelhouse, json: bool) -> None:
    from ddtool.cli import output

    size = sum(wheel.bytes for wheel in house.wheels)
    if json:
        wheels = [{**vars(wheel), "requires": list(wheel.requires)} for wheel in house.wheels]
        about = {
            "folder": str(house.folder),
            "target": vars(house.target),
            "requested": list(house.requested),
        }
        output.emit("wheelhouse", {**about, "installer": house.installer, "bytes": size, "wheels": wheels})
        return
    rows = [
        (
            wheel.name,
            wheel.version,
            f"{wheel.bytes / MIB:.1f}",
            wheel.requires_python or "",
            wheel.sha256[:12],
        )
        for wheel in house.wheels
    ]
    title = f"{house.folder}: {', '.join(house.requested)} for {house.target}"
    output.stdout().print(output.table(title, ("package", "version", "MiB", "Python", "sha256"), rows))
    unpacked = sum(wheel.unpacked_bytes for wheel in house.packages)
    output.words(f"{len(house.wheels)} wheels, {size / MIB:.0f} MiB; {unpacked / MIB:.0f} MiB installed")
