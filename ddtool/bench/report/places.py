"""Where things stand on axes: ticks and names that leave each other room."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from matplotlib.axes import Axes

from ddtool.bench.report.values import plain_text

NAME_ROOM = 0.12
"""Share of an axis that the name of a tick takes."""
Label = tuple[float, str, str]
"""Where on the axis of values, what, in which colour."""


def apart(values: Sequence[float], places: Sequence[float]) -> list[float]:
    """Those of the ascending values whose places are far enough from each other, the last one among them."""
    kept: list[tuple[float, float]] = []
    for value, place in zip(reversed(values), reversed(places), strict=True):
        if not kept or kept[-1][1] - place >= NAME_ROOM * (places[-1] - places[0]):
            kept.append((value, place))
    return [value for value, _ in reversed(kept)]


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … between two values, or powers of ten where those would be too many."""
    exponents = range(int(log10(low)) - 1, int(log10(high)) + 2)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [step * 10.0**e for e in exponents for step in steps if low * 0.9 <= step * 10.0**e <= high * 1.1]


def label_points(ax: Axes, labels: Sequence[Label]) -> None:
    """Texts beside the right edge at these values, moved up or down where they would meet: value, text, colour."""
    ax.get_ylim()  # settles the scale, which transData alone would not
    height = ax.bbox.height
    wanted = sorted(
        (ax.transData.transform((0, value))[1] - ax.bbox.y0, text, colour) for value, text, colour in labels
    )
    gap = 9.5 * ax.figure.dpi / 72
    places = spread([at for at, _, _ in wanted], gap, height)
    for place, (_, text, colour) in zip(places, wanted, strict=True):
        ax.annotate(
            text, (1.03, place / height), xycoords="axes fraction", color=colour, va="center", fontsize=8.5
        )


def spread(places: Sequence[float], gap: float, most: float) -> list[float]:
    """Ascending places at least `gap` apart, near where they were and, if that can be, none above `most`."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else max(place, 0.0))
    for index in range(len(moved) - 1, -1, -1):
        above = moved[index + 1] - gap if index + 1 < len(moved) else most
        moved[index] = min(moved[index], max(above, index * gap))
    return moved


def no_frame(ax: Axes, names: Sequence[str], above: float = 0.0) -> None:
    """Names at the left from below, without lines. above: how far a name stands above its place."""
    ax.set_yticks([place + above for place in range(len(names))], names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)


def short(arm: str, most: int = 12) -> str:
    """An arm's name as a plot has room for."""
    text = plain_text(arm)
    return text if len(text) <= most else text[: most - 1] + "…"
