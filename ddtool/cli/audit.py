"""`ddtool audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt, UnitOpt

if TYPE_CHECKING:
    from collections.abc import Mapping

LINES = 30


def register(app: typer.Typer) -> None:
    app.command()(audit)


def audit(
    since: Annotated[
        str | None,
        typer.Option("--since", help="10min, 2h, or a date and time of the host.", show_default=False),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            help=f"Only the last N; default {LINES} without --since.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Of every service on the host.")] = False,
    unit: UnitOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """Who did what to the service, when, from where, and how it ended: as the host wrote it down."""
    from ddtool.cli import options, output
    from ddtool.errors import UsageError

    if everything and unit:
        raise UsageError("--all is of every service, and --unit of one", hint="choose one")
    if lines is None and since is None:
        lines = LINES
    with options.viewed(profile, host, unit) as viewing:
        asked = None if everything else viewing.unit
        found = viewing.agent.call("audit", unit_name=asked, since=since, last=lines)
        if json:
            about = {"host": viewing.host, "unit": asked, "round_trips": viewing.round_trips}
            output.emit("audit", {**about, "entries": found})
            return
    for item in found:
        style = None if item["ok"] else "red"
        output.stdout().print(output.safe(line(item, everything)), style=style, soft_wrap=True)
    if not found:
        output.words(f"{viewing.host} has noted nothing")


def line(item: Mapping[str, Any], everything: bool) -> str:
    """Lines of an older ddtool lack some keys."""
    from ddtool.cli import output

    seen = item.get("from") or {}
    origin = "@".join(filter(None, [seen.get("login"), seen.get("address")]))
    who = f"{item['who']} (seen as {origin})" if origin else item["who"]
    did = f"{item['kind']} {item['unit']}" if everything else item["kind"]
    about = ", ".join(filter(None, [item.get("what"), item.get("why")]))
    return f"{output.when(item['unix'])}  {who}  {did}{f' ({about})' if about else ''}: {ended(item)}"


def ended(item: Mapping[str, Any]) -> str:
    if item["ok"]:
        return f"ok, ready after {item['ready_s']:.0f} s" if item.get("ready_s") else "ok"
    undone = item.get("rolled_back")
    back = "" if undone is None else ", rolled back" if undone else ", NOT rolled back"
    return f"failed{back}: {item['error']}"
