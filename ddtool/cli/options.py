"""Options that several commands share, so that each has one spelling, one help text and one meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ddtool.deploy.viewing import Viewing
    from ddtool.profile import Profile

ProfileArg = Annotated[
    str | None, typer.Argument(help="Profile name or path; default: the current one.", show_default=False)
]
ProfileOpt = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="Profile name or path; default: the current one.", show_default=False
    ),
]
HostOpt = Annotated[
    str | None,
    typer.Option(
        "--host", help="Host for ssh; default: DDTOOL_HOST or the profile's binding.", show_default=False
    ),
]
UnitOpt = Annotated[
    str | None,
    typer.Option(
        "--unit",
        help="The service, by its unit's name: no profile is needed then.",
        show_default=False,
    ),
]
SetOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the profile, as in speculative.budget=16."
    ),
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DrainOpt = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="SECONDS",
        min=0,
        help="Before the stop, wait at most so long for the requests in flight. New ones still come in: SGLang "
        "cannot refuse them.",
        show_default=False,
    ),
]
DryRunOpt = Annotated[bool, typer.Option("--dry-run", help="Show the plan and touch nothing.")]
AlsoOpt = Annotated[
    list[str] | None,
    typer.Option("--also-affects", metavar="UNIT", help="Another unit that runs from the same environment."),
]
YesOpt = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def profile_of(name: str | None, overrides: list[str] | None) -> Profile:
    """The profile named, or of DDTOOL_PROFILE, or the current one."""
    from ddtool.profile import load
    from ddtool.profile.bind import current

    return load(current(name, os.environ), overrides or ())


def selected(name: str | None, overrides: list[str] | None, host: str | None) -> tuple[Profile, str]:
    """The profile and its host, where the agent starts meanwhile: for commands that go there.

    A profile that does not fit the schema is told at once, whatever becomes of the host.
    """
    from ddtool.deploy.session import open_soon

    where = host_of(name, host)
    open_soon(where)
    return profile_of(name, overrides), where


def host_of(name: str | None, host: str | None) -> str:
    """--host, DDTOOL_HOST, or the profile's binding. The profile's name is enough, whatever is in its file."""
    from ddtool.profile.bind import current, host_for
    from ddtool.profile.search import find

    return host_for(find(current(name, os.environ)).stem, host, os.environ)


def viewed(name: str | None, host: str | None, unit: str | None) -> Viewing:
    """A service to look at: by its unit, by a profile, or, with neither, the only one that the host named has."""
    from ddtool.deploy.viewing import Viewing
    from ddtool.errors import UsageError
    from ddtool.profile.bind import host_for

    if unit and host and name:
        raise UsageError(
            f"--unit {unit} and --host {host} are enough: --profile {name} would be ignored",
            hint="leave --profile out",
        )
    named = host or os.environ.get("DDTOOL_HOST")
    if unit and named:
        return Viewing(host_for("", host, os.environ), unit, None)
    try:
        profile, where = selected(name, None, host)
    except UsageError:
        if name or not named or _has_profile():
            raise
        return Viewing(host_for("", host, os.environ), None, None)
    return Viewing(where, unit or profile.service.unit, None if unit else profile)


def _has_profile() -> bool:
    from ddtool.profile.bind import current_file

    return bool(os.environ.get("DDTOOL_PROFILE")) or current_file().exists()


def make_current(name: str | None) -> None:
    """What was named for a deploy is what later verbs without an argument mean."""
    from ddtool.profile.bind import set_current

    if name:
        set_current(str(Path(name).resolve()) if Path(name).is_file() else name)
