"""What is drawn of a result: for each arm its values by load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ddtool.bench.report.svg import arm_colour, marker
from ddtool.bench.report.values import Json, look, number, plain_text


@dataclass(frozen=True)
class Series:
    """An arm's line: x, y, and the lowest and highest value behind each y."""

    name: str
    colour: str
    marker: str
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


def series(
    cells: Sequence[Json],
    arms: Sequence[str],
    read: Callable[[Any], float | None],
    spread: Callable[[Any], list[float] | None] = lambda row: None,
) -> list[Series]:
    """What `read` gives for each arm at each load; arms without any number are left out."""
    made = []
    for index, arm in enumerate(arms):
        points = []
        for cell in sorted(cells, key=load_of):
            row = look(cell, "arms", arm)
            value = read(row) if row else None
            if value is not None:
                behind = [value, *(spread(row) or [])]
                points.append((load_of(cell), value, min(behind), max(behind)))
        if points:
            x, y, low, high = map(list, zip(*points, strict=True))
            made.append(Series(arm, arm_colour(index), marker(index), x, y, low, high))
    return made


def present(row: Any, *path: str) -> list[float]:
    value = look(row, *path)
    return [] if value is None else [value]


def load_of(cell: Json) -> float:
    where = cell["cell"]
    return float(where["rate"] if where.get("rate") is not None else where.get("concurrency") or 0)


def loads(cells: Iterable[Json]) -> list[float]:
    return sorted({load_of(cell) for cell in cells})


def load_name(cells: Sequence[Json]) -> str:
    return "requests per second" if look(cells[0], "cell", "rate") is not None else "requests at a time"


def told(lines: Sequence[Series], unit: str, load: str) -> str:
    """The plot in words: each arm from its first to its last value."""
    first, last = f"{lines[0].x[0]:g}", f"{lines[0].x[-1]:g}"
    where = f"at {first} {load}" if first == last else f"from {first} to {last} {load}"
    parts = (
        f"{plain_text(each.name)} {number(each.y[0])}"
        + (f" to {number(each.y[-1])}" if len(each.y) > 1 else "")
        for each in lines
    )
    return f"{unit} {where}: " + "; ".join(parts)
