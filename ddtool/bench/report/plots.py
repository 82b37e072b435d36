"""The plots of a benchmark. Each is left out where its numbers are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log2, log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from ddtool.bench.report.svg import GRID, INK, MARKERS, MUTED, Plot, arm_colour, axes, plot
from ddtool.bench.report.values import (
    Json,
    base_of,
    look,
    number,
    plain_text,
    pooled,
    pooled_depths,
    pooled_mean,
    ratio_of,
    times,
    workload_name,
)

LOG_FROM = 12.0
"""Largest over smallest value from which on an axis is logarithmic."""

NAME_ROOM = 0.12
"""Share of an axis that the name of a tick takes."""
FINEST = 0.05
"""A ratio axis reaches at least so far from 1 on both sides: less would make noise look like news."""


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


def workload_plots(cells: Sequence[Json], arms: Sequence[str], prefix: str) -> list[Plot]:
    """All plots of the cells of one workload. arms: in the page's order, which gives them their colours."""
    made = (
        ratios(cells, arms, f"ratios{prefix}"),
        throughput(cells, arms, f"throughput{prefix}"),
        latency(cells, arms, "ttft_ms", "Time to first token", f"ttft{prefix}"),
        latency(cells, arms, "tpot_ms", "Time per output token", f"tpot{prefix}"),
        accepted(cells, arms, f"accepted{prefix}"),
        reached(cells, arms, f"reached{prefix}"),
    )
    return [each for each in made if each is not None]


def throughput(cells: Sequence[Json], arms: Sequence[str], prefix: str) -> Plot | None:
    """Output tok/s by load: a line for each arm, or a bar where only one load was tried."""
    lines = series(
        cells, arms, lambda row: look(row, "tok_s", "median"), lambda row: look(row, "tok_s", "values")
    )
    title = f"Throughput: {workload_name(cells[0])}"
    if not lines:
        return None
    alt = told(lines, "tok/s", load_name(cells))
    if len(loads(cells)) == 1:
        return bars(lines, title, "output tok/s (line: lowest to highest pass)", alt, prefix)
    with axes() as ax:
        with_errors(ax, lines)
        by_load(ax, cells)
        rising(ax, lines, "output tok/s")
        label_ends(ax, lines)
        return plot(ax, title, alt, prefix)


def ratios(cells: Sequence[Json], arms: Sequence[str], prefix: str) -> Plot | None:
    """tok/s relative to the base arm, with intervals. Without plain decoding, beside which trees all look alike."""
    base = base_of(cells[0])
    others = [arm if arm != "plain" else "" for arm in arms]
    lines = series(
        [{**cell, "arms": {arm: ratio_of(cell, arm) for arm in cell.get("arms") or {}}} for cell in cells],
        others,
        lambda row: row.get("ratio"),
        lambda row: [row[side] for side in ("low", "high") if row.get(side) is not None],
    )
    if not lines:
        return None
    alt = told(lines, f"times the tok/s of {base}", load_name(cells))
    title = f"Relative to the {short(base)}: {workload_name(cells[0])}"
    single = len(loads(cells)) == 1
    colour = arm_colour(arms.index(base)) if base in arms else MUTED
    with axes(height=0.75 + 0.34 * len(lines), left=0.95, right=0.55) if single else axes() as ax:
        if single:
            dots(ax, lines)
            lowest, highest = ax.get_xlim()
            ax.set_xlim(min(lowest, 1 - FINEST), max(highest, 1 + FINEST))
            ax.axvline(1, color=colour, linewidth=1)
            ax.set_xlabel(f"times the tok/s of {short(base)} (line: 95 % interval)")
            return plot(ax, title, alt, prefix)
        ax.axhline(1, color=colour, linewidth=1)
        with_errors(ax, lines)
        by_load(ax, cells)
        lowest, highest = ax.get_ylim()
        ax.set_ylim(min(lowest, 1 - FINEST), max(highest, 1 + FINEST))
        ax.set_ylabel(f"times the tok/s of {short(base)}")
        label_points(
            ax, [(1, short(base), colour), *((each.y[-1], short(each.name), each.colour) for each in lines)]
        )
        return plot(ax, title, alt, prefix)


def dots(ax: Axes, lines: Sequence[Series]) -> None:
    """One value with its interval for each arm, below each other."""
    places = range(len(lines) - 1, -1, -1)
    for place, each in zip(places, lines, strict=True):
        apart = [[each.y[0] - each.low[0]], [each.high[0] - each.y[0]]]
        ax.errorbar(each.y[0], place, xerr=apart, color=each.colour, marker=each.marker, capsize=2)
        ax.annotate(times(each.y[0]), (1.02, place), xycoords=("axes fraction", "data"), va="center")
    no_frame(ax, [short(each.name) for each in reversed(lines)])
    ax.set_ylim(-0.6, len(lines) - 0.4)
    ax.margins(x=0.15)
    ax.grid(visible=True, axis="x", color=GRID)


def no_frame(ax: Axes, names: Sequence[str], above: float = 0.0) -> None:
    """Names at the left from below, without lines. above: how far a name stands above its place."""
    ax.set_yticks([place + above for place in range(len(names))], names)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)


def with_errors(ax: Axes, lines: Sequence[Series]) -> None:
    for each in lines:
        below = [y - low for y, low in zip(each.y, each.low, strict=True)]
        above = [high - y for y, high in zip(each.y, each.high, strict=True)]
        ax.errorbar(each.x, each.y, yerr=[below, above], color=each.colour, marker=each.marker, capsize=2)


def latency(cells: Sequence[Json], arms: Sequence[str], metric: str, name: str, prefix: str) -> Plot | None:
    """A latency by load: p50 as a line, p99 dashed."""
    lines = series(cells, arms, lambda row: look(row, metric, "p50"), lambda row: present(row, metric, "p99"))
    title = f"{name}: {workload_name(cells[0])}"
    if not lines:
        return None
    alt = told(lines, "ms (p50)", load_name(cells))
    if len(loads(cells)) == 1:
        return bars(lines, title, "ms, p50 (line: to p99)", alt, prefix)
    with axes() as ax:
        for each in lines:
            ax.plot(each.x, each.y, color=each.colour, marker=each.marker)
            ax.plot(each.x, each.high, color=each.colour, linestyle=(0, (2, 2)), linewidth=1)
        by_load(ax, cells)
        rising(ax, lines, "ms (p99 dashed)")
        label_ends(ax, lines)
        return plot(ax, title, alt, prefix)


def present(row: Any, *path: str) -> list[float]:
    value = look(row, *path)
    return [] if value is None else [value]


def accepted(cells: Sequence[Json], arms: Sequence[str], prefix: str) -> Plot | None:
    """Share of rounds by the tokens they gave, a row of bars for each arm."""
    counts = pooled(cells)
    rows = [arm for arm in arms if arm in counts]
    if not rows:
        return None
    lengths = range(1, max(map(max, counts.values())) + 1)
    shares = {
        arm: [counts[arm].get(n, 0) / (sum(counts[arm].values()) or 1) for n in lengths] for arm in rows
    }
    means = {arm: pooled_mean(cells, arm) for arm in rows}
    most = max(map(max, shares.values()))
    with axes(height=0.62 + 0.5 * len(rows), left=0.95, right=0.75, top=0.16) as ax:
        for row, arm in enumerate(rows):
            base = len(rows) - 1 - row
            heights = [share / most * 0.8 for share in shares[arm]]
            ax.bar(lengths, heights, bottom=base, width=0.8, color=arm_colour(arms.index(arm)))
            ax.axhline(base, color=MUTED, linewidth=0.6)
            ax.annotate(number(means[arm]), (1.02, base + 0.2), xycoords=("axes fraction", "data"), color=INK)
        ax.annotate("mean", (1.02, len(rows) - 0.2), xycoords=("axes fraction", "data"), color=MUTED)
        no_frame(ax, [short(arm) for arm in reversed(rows)], above=0.3)
        ax.set_ylim(0, len(rows))
        ax.set_xticks(list(lengths))
        ax.set_xlabel(f"tokens a round gave (highest bar: {most:.0%} of rounds)")
        alt = "; ".join(f"{plain_text(arm)} {number(means[arm])} tokens a round" for arm in rows)
        return plot(ax, f"Accepted length: {workload_name(cells[0])}", alt, prefix)


def reached(cells: Sequence[Json], arms: Sequence[str], prefix: str) -> Plot | None:
    """Share of rounds that got at least so deep, by depth."""
    shares = {arm: depths for arm in arms if (depths := pooled_depths(cells, arm))}
    if not shares:
        return None
    with axes() as ax:
        for arm, depths in shares.items():
            index = arms.index(arm)
            ax.plot(
                range(1, len(depths) + 1),
                depths,
                color=arm_colour(index),
                marker=MARKERS[index % len(MARKERS)],
            )
        ax.set_ylim(0, 1)
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.set_xlabel("depth")
        ax.set_ylabel("share of rounds")
        label_points(
            ax, [(depths[-1], short(arm), arm_colour(arms.index(arm))) for arm, depths in shares.items()]
        )
        alt = "; ".join(
            f"{plain_text(arm)} " + ", ".join(f"{each:.0%}" for each in shares[arm]) for arm in shares
        )
        return plot(ax, f"Depth reached: {workload_name(cells[0])}", "by depth from 1. " + alt, prefix)


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
            made.append(Series(arm, arm_colour(index), MARKERS[index % len(MARKERS)], x, y, low, high))
    return made


def load_of(cell: Json) -> float:
    where = cell["cell"]
    return float(where["rate"] if where.get("rate") is not None else where.get("concurrency") or 0)


def loads(cells: Iterable[Json]) -> list[float]:
    return sorted({load_of(cell) for cell in cells})


def load_name(cells: Sequence[Json]) -> str:
    return "requests per second" if look(cells[0], "cell", "rate") is not None else "requests at a time"


def by_load(ax: Axes, cells: Sequence[Json]) -> None:
    """The axis of loads: those tried are its ticks, as far as there is room for their names."""
    tried = loads(cells)
    ax.set_xlabel(load_name(cells))
    places = tried
    if tried[0] > 0 and tried[-1] / tried[0] >= 8:
        ax.set_xscale("log", base=2)
        places = [log2(value) for value in tried]
    ax.xaxis.set_major_locator(FixedLocator(apart(tried, places)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def apart(values: Sequence[float], places: Sequence[float]) -> list[float]:
    """Those of the ascending values whose places are far enough from each other, the last one among them."""
    kept: list[tuple[float, float]] = []
    for value, place in zip(reversed(values), reversed(places), strict=True):
        if not kept or kept[-1][1] - place >= NAME_ROOM * (places[-1] - places[0]):
            kept.append((value, place))
    return [value for value, _ in reversed(kept)]


def rising(ax: Axes, lines: Sequence[Series], name: str) -> None:
    """The axis of values: from zero, or logarithmic where the values differ by orders."""
    values = [value for each in lines for value in (*each.low, *each.high)]
    if min(values) > 0 and max(values) / min(values) > LOG_FROM:
        ax.set_yscale("log")
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(FixedLocator(ticks(min(values), max(values))))
        thousands = EngFormatter(sep="")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1e5 else thousands(value))
        name += ", logarithmic"
    else:
        ax.set_ylim(0, max(values) * 1.08 or 1)
    ax.set_ylabel(name)


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … between two values, or powers of ten where those would be too many."""
    exponents = range(int(log10(low)) - 1, int(log10(high)) + 2)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [step * 10.0**e for e in exponents for step in steps if low * 0.9 <= step * 10.0**e <= high * 1.1]


def label_ends(ax: Axes, lines: Sequence[Series]) -> None:
    """Each line's name at its right end."""
    label_points(ax, [(each.y[-1], short(each.name), each.colour) for each in lines])


def label_points(ax: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
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


def bars(lines: Sequence[Series], title: str, unit: str, alt: str, prefix: str) -> Plot:
    """One bar from zero for each arm."""
    with axes(height=0.62 + 0.34 * len(lines), left=0.95, right=0.55) as ax:
        places = range(len(lines) - 1, -1, -1)
        values = [each.y[0] for each in lines]
        errors = [[each.y[0] - each.low[0] for each in lines], [each.high[0] - each.y[0] for each in lines]]
        ax.barh(
            places,
            values,
            color=[each.colour for each in lines],
            height=0.7,
            xerr=errors,
            ecolor=INK,
            capsize=2,
        )
        for place, each in zip(places, lines, strict=True):
            ax.annotate(
                number(each.y[0]), (each.high[0], place), (4, 0), textcoords="offset points", va="center"
            )
        no_frame(ax, [short(each.name) for each in reversed(lines)])
        ax.grid(visible=True, axis="x", color=GRID)
        ax.set_xlabel(unit)
        return plot(ax, title, alt, prefix)


def short(arm: str, most: int = 12) -> str:
    """An arm's name as a plot has room for."""
    text = plain_text(arm)
    return text if len(text) <= most else text[: most - 1] + "…"


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
