"""`ddtool explain`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt, UnitOpt

if TYPE_CHECKING:
    from ddtool.deploy.look import Look
    from ddtool.deploy.viewing import Viewing


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    unit: UnitOpt = None, profile: ProfileOpt = None, host: HostOpt = None, json: JsonOpt = False
) -> None:
    """Why the service is as it is, in one sentence, and what to type next. Changes nothing; exit 0 whatever it says."""
    from ddtool.cli import options, output
    from ddtool.deploy.explain import explain as reason_of

    with options.viewed(profile, host, unit) as viewing:
        told = reason_of(look_of(viewing, profile, host))
        if json:
            about = {"host": viewing.host, "unit": viewing.unit, "round_trips": viewing.round_trips}
            output.emit("explain", {**about, **vars(told)})
            return
    console = output.stdout()
    console.print(output.safe(told.sentence), style="bold", soft_wrap=True)
    console.print(output.safe(f"next: {told.next_command}"), soft_wrap=True)
    for item in told.also:
        console.print(output.safe(f"also: {item['sentence']} → {item['next_command']}"), soft_wrap=True)


def look_of(viewing: Viewing, profile: str | None, host: str | None) -> Look:
    """The situation, and what this operator's next command has to name."""
    from ddtool.deploy.look import Look
    from ddtool.engine import engine_id

    found = viewing.situation()
    by_unit = profile is None and viewing.profile is None  # somebody who has no profile of it
    if by_unit:
        profile = found["release"]["profile"] if found["release"] else "PROFILE"
    shell = shell_of(viewing.host)
    return Look(viewing.unit, found, engine_id(), profile or "", host or "", shell, by_unit)


def shell_of(host: str) -> str:
    """What runs a command on the host, as one types it."""
    from ddtool.deploy.session import ssh_name

    if host == "local":
        return "sh -c"
    name, config = ssh_name(host)
    options = ["-F", config] if config else []
    return shlex.join(["ssh", *options, name])
