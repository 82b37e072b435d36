"""What a person or a program reads: data to stdout, words to stderr, remote text as data."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ddtool.errors import DdtoolError

# Control characters, and those by which a text can show its letters in another order than they are read.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@cache
def stdout() -> Console:
    return _console(stderr=False)


@cache
def stderr() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Whatever is printed on it goes through `safe`: one forgotten call must not let a host write to the terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class Cleaning(Console):
        def render(self, renderable: Any, options: Any = None) -> Any:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(safe(segment.text), segment.style)

    return Cleaning(stderr=stderr, markup=False, highlight=False, emoji=False)


def safe(text: object) -> str:
    """Remote text for a terminal: no escape sequence or control character survives."""
    return CONTROL.sub("", str(text))


def words(text: str, style: str | None = None) -> None:
    """A sentence to the person at the terminal."""
    stderr().print(safe(text), style=style, soft_wrap=True)


def emit(command: str, data: dict[str, Any]) -> None:
    """The one JSON object of `--json`."""
    print(json.dumps({"schema": f"ddtool.{command}/1", **data}))  # noqa: T201  this is the output


def table(title: str | None, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A plain table whose cells are data."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(safe(cell)) for cell in row))
    return made


def report_error(error: DdtoolError) -> None:
    """What happened, why, and the next command."""
    words(f"error: {error.message}", "bold red")
    if error.why:
        for line in error.why.splitlines():
            words(f"  {line}")
    if error.hint:
        words(f"next: {error.hint}", "bold")


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere `--yes` is needed. Anything but yes ends the command."""
    from ddtool.errors import DdtoolError, UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask.", hint="add --yes")
    if not typer.confirm(safe(question), err=True):
        raise DdtoolError("the answer was not yes: nothing was done")


def minutes(seconds: float) -> str:
    """`45 s`, `6.5 min`, or `until it is started again`."""
    if seconds == float("inf"):
        return "open-ended"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"


def when(unix: float) -> str:
    """A time on the host in the operator's zone."""
    from datetime import datetime

    return datetime.fromtimestamp(unix).astimezone().strftime("%Y-%m-%d %H:%M:%S")
