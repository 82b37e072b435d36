"""`ddtool crash`: what a log, a bundle or the last bad end of the service says about its first cause."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt, UnitOpt

if TYPE_CHECKING:
    from ddtool.crash.history import Crash
    from ddtool.crash.model import Verdict
    from ddtool.crash.page import Row
    from ddtool.profile import Profile

NO_TERMINAL_WIDTH, WIDEST = 100, 120

app = typer.Typer(
    help="Verdicts about crashes: first cause, cascade, evidence, remedy.", no_args_is_help=True
)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="crash")


@app.command("classify")
def classify(
    source: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="A log, plain or packed, or a bundle; default: stdin.")
    ] = "-",
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Explain the numbers with this profile.", show_default=False),
    ] = None,
    json: JsonOpt = False,
) -> None:
    """Say what a log's first cause is. Needs no host; any verdict exits 0."""
    from ddtool.cli import options, output

    chosen = options.profile_of(profile, None) if profile else None
    verdict, heading = judged(source, chosen)
    if json:
        output.emit("crash.classify", verdict.to_json())
        return
    from ddtool.crash.page import page

    show(page(verdict, width_of(sys.stdout), heading=heading), sys.stdout)


def judged(source: str, profile: Profile | None) -> tuple[Verdict, str]:
    """The verdict about a file, a bundle or stdin, and what to call it."""
    from ddtool.cli import output
    from ddtool.crash import bundle, evidence
    from ddtool.crash.classify import classify as classify_stream
    from ddtool.errors import UsageError

    if source == "-":
        if sys.stdin.isatty():
            output.words("paste the log and end it with Ctrl-D")
        return classify_stream(sys.stdin.buffer, evidence.context_of(profile)), ""
    path = Path(source)
    if bundle.is_bundle(path):
        found = bundle.read(path)
        return evidence.classify(found, profile), heading_of(found.manifest)
    try:
        with path.open("rb") as stream:
            return classify_stream(stream, evidence.context_of(profile)), ""
    except OSError as error:
        raise UsageError(
            f"cannot read {source}: {error.strerror}", hint="`-` reads standard input"
        ) from error


@app.command("last")
def last(
    unit: UnitOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """Say why the service ended badly the last time, and whether it did so before."""
    from ddtool.cli import options, output

    with options.viewed(profile, host, unit) as viewing:
        crash, name = viewing.last_crash(), viewing.host
        if json:
            about = {"host": name, "unit": viewing.unit, "round_trips": viewing.round_trips}
            output.emit("crash.last", {**about, "crash": crash.to_json() if crash else None})
        elif crash:
            show_crash(crash, sys.stdout)
        else:
            output.words(f"{name} keeps no crash of {viewing.unit}", "green")


@app.command("bundle")
def bundle(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; default: named after the run, here.")
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Of the running service, with its stacks, not of the last crash.")
    ] = False,
    with_requests: Annotated[
        bool, typer.Option("--with-requests", help="Keep what users' requests said, where it was logged.")
    ] = False,
    unit: UnitOpt = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """Fetch everything that the host keeps about the last crash as one archive, without secrets."""
    from ddtool.cli import options, output
    from ddtool.crash import bundle as bundles
    from ddtool.crash import history

    with options.viewed(profile, host, unit) as viewing:
        name, of = viewing.host, (viewing.unit, viewing.profile)
        taken = history.bundle(viewing.agent, *of, now=now, with_requests=with_requests)
    path = out or Path(bundles.name_of(taken) + ".tar.gz")
    bundles.write(taken, path)
    if json:
        output.emit("crash.bundle", {"host": name, "file": str(path), "manifest": taken.manifest})
        return
    sys.stdout.write(f"{path}\n")
    said = "with what requests said" if with_requests else "without what requests said"
    output.words(f"{len(taken.files)} files, {said}; to read it: ddtool crash classify {path}")


def show_crash(crash: Crash, stream: TextIO, *, short: bool = False) -> None:
    """A crash of a host as `crash last`, a failed deploy and `logs --follow` show it."""
    from ddtool.crash.page import brief, page

    make = brief if short else page
    heading = heading_of(crash.manifest)
    show(make(crash.verdict, width_of(stream), heading=heading, seen=seen_text(crash)), stream)


def seen_text(crash: Crash) -> str:
    from ddtool.cli import output

    seen = crash.seen
    if seen is None:
        return ""
    if seen.count == 1:
        return "1 time"
    return (
        f"{seen.count} times, first {output.when(seen.first_unix)}, last {output.when(seen.last_unix)} "
        f"({crash.verdict.fingerprint})"
    )


def heading_of(manifest: dict[str, Any]) -> str:
    """Which run it is, and what the gate, or `diag run`, said of it."""
    from ddtool.cli import output

    run = f"{manifest.get('unit')}, run {str(manifest.get('invocation'))[:8]} of release {manifest.get('release')}"
    unix, why = manifest.get("unix"), manifest.get("why")
    ended = f", ended {output.when(unix)}" if isinstance(unix, (int, float)) else ""
    return run + ended + (f"; {why}" if why else "")


def width_of(stream: TextIO) -> int:
    import shutil

    if not stream.isatty():
        return NO_TERMINAL_WIDTH
    return min(WIDEST, shutil.get_terminal_size((NO_TERMINAL_WIDTH, 24)).columns)


def show(rows: Iterable[Row], stream: TextIO) -> None:
    if not stream.isatty():
        from ddtool.crash.page import text

        stream.write(text(rows))
        stream.flush()
        return
    from rich.text import Text

    from ddtool.cli import output

    console = output.stderr() if stream is sys.stderr else output.stdout()
    for row in rows:
        console.print(Text.assemble(*row), soft_wrap=True)
