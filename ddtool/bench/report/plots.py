"""The plots of a benchmark. Each is left out where its numbers are missing."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from ddtool.bench.report.places import apart, label_points, no_frame, short, ticks
from ddtool.bench.report.series import Series, load_name, loads, present, series, told
from ddtool.bench.report.svg import GRID, INK, MUTED, Plot, arm_colour, axes, marker, plot
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

FINEST = 0.05
"""A ratio axis reaches at least so far from 1 on both sides: less would make noise look like news."""


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
            ax.plot(range(1, len(depths) + 1), depths, color=arm_colour(index), marker=marker(index))
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


def label_ends(ax: Axes, lines: Sequence[Series]) -> None:
    """Each line's name at its right end."""
    label_points(ax, [(each.y[-1], short(each.name), each.colour) for each in lines])


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
