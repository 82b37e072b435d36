"""Tables on a terminal that may be narrow, colourless or ASCII only. A number is never wrapped or cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ddtool.bench.report.values import plain_lines, plain_text

EIGHTHS = " ▏▎▍▌▋▊▉█"
GAP = 2
ASCII_BOX = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
ASCII_FOR = str.maketrans({"–": "-", "…": "~", "×": "x", "±": "+", "≥": ">", "·": "-", "✓": "*", "µ": "u"})


@dataclass(frozen=True)
class Column:
    """A column: what it is called, its cells, and whether it is text (left, may be shortened) or numbers (right)."""

    name: str
    cells: Sequence[str]
    text: bool = False
    styles: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bars:
    """A column of bars from zero. values: None draws nothing; `most` is a full bar."""

    values: Sequence[float | None]
    most: float
    width: int = 8
    name: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table of groups of columns. Where the console is too narrow it becomes several, each with `first`."""

    title: str
    first: Column
    groups: Sequence[Sequence[Column | Bars]]
    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ascii_only = speaks_ascii(options)
        room = options.max_width
        first = shortened(drawn(self.first, ascii_only), max(room // 3, 10))
        groups = [[drawn(column, ascii_only) for column in group] for group in self.groups]
        yield Text(to_ascii(self.title) if ascii_only else self.title, "bold")
        for number, columns in enumerate(blocks(first, groups, room)):
            if number:
                yield ""
            yield table([first, *columns], ascii_only)
        for note in self.notes:
            yield Text(to_ascii(note) if ascii_only else note, "dim")


@dataclass(frozen=True)
class Words:
    """A sentence that may be as long as it likes."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = plain_text(self.text)
        yield Text(to_ascii(text) if speaks_ascii(options) else text, self.style, overflow="fold")


@dataclass(frozen=True)
class Verbatim:
    """Lines to be copied: a file's text, indented."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in plain_lines(self.text).splitlines():
            yield Text("  " + (to_ascii(line) if speaks_ascii(options) else line), "cyan", overflow="fold")


def speaks_ascii(options: ConsoleOptions, environ: Mapping[str, str] | None = None) -> bool:
    """Whether to keep to ASCII: the stream says so, or its owner asked for the C locale.

    Python speaks UTF-8 in the C locale too, and sets LC_CTYPE itself, so neither tells what the terminal can show.
    """
    environ = os.environ if environ is None else environ
    return options.ascii_only or (environ.get("LC_ALL") or environ.get("LANG")) in {"C", "POSIX"}


def to_ascii(text: str) -> str:
    return text.translate(ASCII_FOR).encode("ascii", "replace").decode()


def drawn(column: Column | Bars, ascii_only: bool) -> Column:
    """A column whose cells are what will stand there."""
    if isinstance(column, Bars):
        return Column(
            column.name,
            [
                bar(value, column.most, column.width, ascii_only).ljust(column.width)
                for value in column.values
            ],
            text=True,
        )
    cells = [plain_text(cell) for cell in column.cells]
    if ascii_only:
        return Column(to_ascii(column.name), [to_ascii(cell) for cell in cells], column.text, column.styles)
    return Column(column.name, cells, column.text, column.styles)


def bar(value: float | None, most: float, width: int, ascii_only: bool) -> str:
    """`value` of `most` as a bar, at most `width` characters; the smallest value above zero is still to be seen."""
    if not value or value < 0 or most <= 0:
        return ""
    eighths = max(1, min(round(value / most * width * 8), width * 8))
    if ascii_only:
        return "#" * max(1, round(eighths / 8))
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def shortened(column: Column, most: int) -> Column:
    """Names cut in their middle, since their ends differ too."""
    return Column(column.name, [middle(cell, most) for cell in column.cells], column.text, column.styles)


def middle(text: str, most: int) -> str:
    """`a-long-na…e-here`"""
    if cell_len(text) <= most:
        return text
    tail = (most - 1) // 3
    end = set_cell_size(text[::-1], tail)[::-1]
    return set_cell_size(text, most - 1 - tail) + ("~" if text.isascii() else "…") + end


def width_of(column: Column) -> int:
    return max(map(cell_len, (*column.name.split("\n"), *column.cells)), default=0)


def blocks(first: Column, groups: Iterable[Sequence[Column]], room: int) -> list[list[Column]]:
    """The columns in as few tables as the room allows. A group stays together if it can have a table of its own."""
    made: list[list[Column]] = []
    whole = room - width_of(first)
    left = -1
    for group in groups:
        if left < needed(group) <= whole:
            left = -1
        for column in group:
            if left < needed([column]):
                made.append([])
                left = whole
            made[-1].append(column)
            left -= needed([column])
    return made


def needed(columns: Iterable[Column]) -> int:
    return sum(width_of(column) + GAP for column in columns)


def table(columns: Sequence[Column], ascii_only: bool) -> RenderableType:
    made = Table(
        box=ASCII_BOX if ascii_only else box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, GAP - 1, 0, 0),  # and the box's own column
        pad_edge=False,
        header_style="dim",
    )
    for column in columns:
        made.add_column(
            Text(column.name), justify="left" if column.text else "right", no_wrap=True, vertical="bottom"
        )
    for index in range(len(columns[0].cells)):
        made.add_row(*(Text(column.cells[index], style_of(column, index)) for column in columns))
    return made


def style_of(column: Column, index: int) -> str:
    return column.styles[index] if index < len(column.styles) else ""
