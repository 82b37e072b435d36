"""A verdict as a page for a person. Pure: rows of styled pieces of text; whoever prints them owns the terminal.

Everything that came out of a log is data here: control characters and those that turn text around are gone, and no
piece is ever read as markup.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from ddtool.crash.model import FirstCause, Verdict
from ddtool.crash.wording import TORCH_HEAD

Piece = tuple[str, str]
"""Text, and its style: "" or a word that the command line knows (bold, dim, red, yellow, green)."""
Row = tuple[Piece, ...]

LABEL = 13
NARROWEST = 60
QUOTE_LINES, CELL_LINES = 6, 2
CASCADE_MOST, EVIDENCE_MOST = 6, 8
CONFIDENCE = {"high": "green", "medium": "yellow", "low": "red"}
NOT_TEXT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def page(verdict: Verdict, width: int, *, heading: str = "", seen: str = "") -> list[Row]:
    """The whole page, each row at most `width` characters. `heading`: whose crash it is; `seen`: how often before."""
    width = max(width, NARROWEST)
    rows: list[Row] = [((line, "dim"),) for line in wrap(heading, width)]
    rows += title(verdict, width)
    rows += [((line, "bold"),) for line in wrap(verdict.cause, width)]
    if verdict.first_cause:
        rows += [(), *first_cause(verdict.first_cause, width)]
    if verdict.ranks:
        rows += [(), *rank_table(verdict.ranks, width)]
    rows += quotes("then", verdict.cascade, CASCADE_MOST, width)
    rows += quotes("evidence", verdict.evidence, EVIDENCE_MOST, width)
    rows += listing("missing", verdict.missing, width)
    rows += [(), *labelled("remedy", verdict.remedy, width)] if verdict.remedy else []
    rows += labelled("next", verdict.next_command, width, "bold") if verdict.next_command else []
    rows += labelled("seen", seen, width) if seen else []
    return rows


def brief(verdict: Verdict, width: int, *, heading: str = "", seen: str = "") -> list[Row]:
    """What fits between the lines of a log: what, where, and what to type."""
    width = max(width, NARROWEST)
    rows: list[Row] = [((line, "dim"),) for line in wrap(heading, width)]
    rows += title(verdict, width)
    rows += [((line, "bold"),) for line in wrap(verdict.cause, width)]
    if verdict.first_cause:
        rows += first_cause(verdict.first_cause, width)
    rows += labelled("seen", seen, width) if seen else []
    return [*rows, *labelled("next", verdict.next_command, width, "bold")]


def text(rows: Iterable[Row]) -> str:
    """Rows without styles, each ended by a newline."""
    return "".join("".join(piece for piece, _ in row).rstrip() + "\n" for row in rows)


def title(verdict: Verdict, width: int) -> list[Row]:
    name = plain(verdict.category) + (f" / {plain(verdict.subcode)}" if verdict.subcode else "")
    style = (
        "green" if verdict.category == "no_crash" else "yellow" if verdict.category == "unknown" else "red"
    )
    sure = f"confidence {verdict.confidence}"
    gap = width - len(name) - len(sure)
    if gap < 2:
        return [((name, f"bold {style}"),), ((sure, CONFIDENCE[verdict.confidence]),)]
    return [((name, f"bold {style}"), (" " * gap, ""), (sure, CONFIDENCE[verdict.confidence]))]


def first_cause(cause: FirstCause, width: int) -> list[Row]:
    lines = wrap(cause.text, width - LABEL, QUOTE_LINES)
    return [
        label("first cause", where(cause), "dim"),
        *((((" " * LABEL), ""), (line, "red")) for line in lines),
    ]


def where(cause: FirstCause) -> str:
    parts = [f"line {cause.line}"]
    parts += [f"rank {cause.rank}"] if cause.rank is not None else []
    parts += [f"{cause.worker} worker"] if cause.worker else []
    return ", ".join(parts)


def rank_table(ranks: Iterable[Mapping[str, Any]], width: int) -> list[Row]:
    """Who failed first, how far each rank had come and what it said; ranks that say the same share a row."""
    shown = grouped(ranks)
    names = [("first " if row["first"] else "") + row["ranks"] for row in shown]
    phases = [plain(row["phase"] or "-") for row in shown]
    left = max(len("rank"), *map(len, names)) + 2
    middle = max(len("reached"), *map(len, phases)) + 2
    number = max(len("line"), *(len(row["lines"]) for row in shown)) + 2
    room = width - left - middle - number
    head = f"{'rank':<{left}}{'reached':<{middle}}{'line':<{number}}said"
    rows: list[Row] = [((head, "dim"),)]
    for name, phase, row in zip(names, phases, shown, strict=True):
        style = "red" if row["first"] else ""
        said = wrap(row["text"], room, CELL_LINES) or ["nothing"]
        start = f"{name:<{left}}{phase:<{middle}}{row['lines']:<{number}}"
        rows.append(((start, style), (said[0], style)))
        rows += [(((" " * len(start)), ""), (line, style)) for line in said[1:]]
    return rows


def grouped(ranks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows `{ranks: "0-2, 7", phase, lines, text, first}`: the first to fail, then by rank."""
    rows: dict[Any, dict[str, Any]] = {}
    for item in sorted(ranks, key=lambda item: (not item.get("first"), item["rank"])):
        said = plain(item.get("text") or "")
        key = (bool(item.get("first")), item.get("phase"), said)
        row = rows.setdefault(
            key, {"members": [], "numbers": [], "phase": item.get("phase"), "text": said, "first": key[0]}
        )
        row["members"].append(item["rank"])
        row["numbers"] += [item["line"]] if item.get("line") else []
    for row in rows.values():
        row["ranks"] = spans(row["members"])
        row["lines"] = f"{min(row['numbers'])}" if row["numbers"] else "-"
    first = next((row for row in rows.values() if row["first"]), None)
    for row in rows.values():
        if first and row is not first and row["text"] and row["text"] == first["text"]:
            row["text"] = "the same"
    return list(rows.values())


def spans(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] → "0-2, 5"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def quotes(name: str, causes: tuple[FirstCause, ...], most: int, width: int) -> list[Row]:
    """Lines of the log under one label, each with its place; a quote is as short as two rows make it."""
    if not causes:
        return []
    rows: list[Row] = [()]
    places = [where(cause) for cause in causes]
    wide = max(map(len, places[:most])) + 2
    for number, (cause, place) in enumerate(zip(causes[:most], places, strict=False)):
        lines = wrap(TORCH_HEAD.sub("", cause.text), width - LABEL - wide, CELL_LINES) or [""]
        rows.append((*label(name if number == 0 else "", ""), (f"{place:<{wide}}", "dim"), (lines[0], "")))
        rows += [(((" " * (LABEL + wide)), ""), (line, "")) for line in lines[1:]]
    if len(causes) > most:
        rows.append(label("", f"and {len(causes) - most} more (all of them: --json)", "dim"))
    return rows


def listing(name: str, items: tuple[str, ...], width: int) -> list[Row]:
    rows: list[Row] = [()] if items else []
    for number, item in enumerate(items):
        rows += labelled(name if number == 0 else "", item, width)
    return rows


def labelled(name: str, value: str, width: int, style: str = "") -> list[Row]:
    lines = wrap(value, width - LABEL) or [""]
    return [label(name if number == 0 else "", line, style) for number, line in enumerate(lines)]


def label(name: str, value: str, style: str = "") -> Row:
    return ((f"{name:<{LABEL}}", "dim"), (value, style))


def wrap(value: str, width: int, most: int | None = None) -> list[str]:
    """`value` in lines of at most `width`; with `most`, the last one says by "…" that it was cut."""
    lines = textwrap.wrap(plain(value), width, break_on_hyphens=False)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], lines[most - 1][: width - 1].rstrip() + "…"]


def plain(value: str) -> str:
    return NOT_TEXT.sub(" ", value)
