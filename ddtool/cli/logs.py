"""`ddtool logs`: the service's journal, followed over links that break."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ddtool.cli.options import HostOpt, ProfileOpt, UnitOpt

if TYPE_CHECKING:
    from ddtool.deploy.viewing import Viewing
    from ddtool.journal.follow import LinkEvent
    from ddtool.journal.records import Record
    from ddtool.transport.agent import Agent

LINES = 100

FollowOpt = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with what comes, through lost links and reboots.")
]
SinceOpt = Annotated[
    str | None,
    typer.Option(help="10min, 2h, a time of the host, or `invocation`: the current run.", show_default=False),
]
GrepOpt = Annotated[
    str | None, typer.Option("--grep", "-g", help="Python regular expression.", show_default=False)
]
RankOpt = Annotated[int | None, typer.Option(help="Only this tensor-parallel rank.", show_default=False)]
LevelOpt = Annotated[
    str | None,
    typer.Option(help="This level and above: debug, info, warning, error, critical.", show_default=False),
]
KernelOpt = Annotated[bool, typer.Option("--kernel", help="The kernel's lines too (Xid, out of memory).")]
LinesOpt = Annotated[
    int | None,
    typer.Option(
        "--lines", "-n", help=f"Only the last N; default {LINES} without --since.", show_default=False
    ),
]
CursorOpt = Annotated[str | None, typer.Option(help="Go on after this record of --json.", show_default=False)]
JsonLinesOpt = Annotated[bool, typer.Option("--json", help="One JSON record a line.")]
RawOpt = Annotated[bool, typer.Option("--raw", help="The service's own text and nothing else.")]


def register(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    unit: UnitOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    follow: FollowOpt = False,
    since: SinceOpt = None,
    grep: GrepOpt = None,
    rank: RankOpt = None,
    level: LevelOpt = None,
    kernel: KernelOpt = False,
    lines: LinesOpt = None,
    after_cursor: CursorOpt = None,
    json: JsonLinesOpt = False,
    raw: RawOpt = False,
) -> None:
    """Show the unit's records, and systemd's about it, in the journal's order.

    Without --since, a filter looks through the current run.
    """
    from ddtool.cli import options, output
    from ddtool.errors import UsageError
    from ddtool.journal import follow as following

    if json and raw:
        raise UsageError("--json and --raw are two forms of output", hint="choose one")
    if since is not None and after_cursor is not None:
        raise UsageError("--since and --after-cursor are two places to begin", hint="choose one")
    if lines is None and since is None and after_cursor is None:
        lines = LINES
    show = _printer(json, raw)
    shown = 0
    try:
        with options.viewed(profile, host, unit) as viewing:
            request = following.Request(
                viewing.unit, follow, since, after_cursor, grep, rank, level, kernel, lines
            )
            for record in following.follow(
                _opener(viewing), request, on_event=_tell_link, on_end=_announcer(viewing, json)
            ):
                show(record)
                shown += 1
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not shown:
        output.words(f"no records of {viewing.unit} on {viewing.host} match")


def _opener(viewing: Viewing) -> Callable[[], Agent]:
    """The agent that is there, and new ones after it; the first time it also says which diagnostics are on, since their
    lines are in the log."""
    told = False

    def open_and_tell() -> Agent:
        nonlocal told
        if told:
            return viewing.reconnect()
        told = True
        _tell_diagnostics(viewing)
        return viewing.agent

    return open_and_tell


def _tell_diagnostics(viewing: Viewing) -> None:
    """Nothing of a unit that is not ddtool's: its log can be read all the same."""
    from ddtool.cli import output
    from ddtool.diagnostics.view import banner
    from ddtool.errors import UsageError

    try:
        line = banner(viewing.diagnostics())
    except UsageError:
        return
    if line:
        output.words(line, "yellow")


def _printer(as_json: bool, raw: bool) -> Callable[[Record], None]:
    """How one record reaches stdout. Flushed each time: whoever reads a pipe is following too."""
    import json
    import sys

    from ddtool.cli import output
    from ddtool.journal.show import line, plain

    terminal = sys.stdout.isatty()

    def show_json(record: Record) -> None:
        sys.stdout.write(json.dumps(record.to_json()) + "\n")
        sys.stdout.flush()

    def show_raw(record: Record) -> None:
        if record.gap:
            output.words(record.text, "yellow")
            return
        sys.stdout.write((plain(record.text) if terminal else record.text) + "\n")
        sys.stdout.flush()

    def show_line(record: Record) -> None:
        head, text, style = line(record)
        if not terminal:
            sys.stdout.write(f"{head}{text}\n")
            sys.stdout.flush()
            return
        from rich.text import Text

        output.stdout().print(Text.assemble((head, "dim"), (text, style or "")), soft_wrap=True)

    return show_json if as_json else show_raw if raw else show_line


def _announcer(viewing: Viewing, as_json: bool) -> Callable[[str], None]:
    """Tells the verdict about a run that has ended, behind its last record. Its evidence is there by then: systemd's
    last word comes after `ExecStopPost=`. What is in the way of a verdict is told, and the log goes on."""
    told = set()

    def announce(invocation: str) -> None:
        import sys

        from ddtool.cli import output
        from ddtool.cli.crash import show_crash
        from ddtool.deploy.viewing import Viewing
        from ddtool.errors import DdtoolError

        if invocation in told:  # systemd says it again when it gives up restarting
            return
        told.add(invocation)
        try:
            with Viewing(
                viewing.host, viewing.unit, viewing.profile
            ) as beside:  # the first one streams the log
                crash = beside.last_crash(invocation)
        except DdtoolError as error:
            output.words(f"no verdict: {error.message}", "yellow")
            return
        if crash and as_json:
            output.emit("crash.classify", crash.to_json())
            sys.stdout.flush()
        elif crash:
            show_crash(crash, sys.stderr, short=True)

    return announce


def _tell_link(event: LinkEvent) -> None:
    from ddtool.cli import output

    if event.error:
        output.words(f"link lost: {event.error.message}; trying again", "yellow")
    else:
        output.words(f"link is back after {event.away_s:.1f} s; going on after the last record", "green")
