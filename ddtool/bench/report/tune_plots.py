"""The plots of a tuning run. Each is left out where its numbers are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

from matplotlib.axes import Axes

from ddtool.bench.report.places import Label, label_points, no_frame, short
from ddtool.bench.report.svg import GRID, INK, MUTED, PAPER, Plot, arm_colour, axes, marker, plot, step_colour
from ddtool.bench.report.values import (
    BudgetCurve,
    Json,
    VerifyCurve,
    Where,
    budget_curves,
    budget_of,
    number,
    plain_text,
    steps_of,
    verify_curves,
    verify_name,
)

STYLES = ("-", (0, (5, 1.5)), (0, (1, 1)))
"""Of lines that belong to no arm."""
LEGEND = 50
"""Characters that a line of a legend has room for."""
LEGIBLE = 0.09
"""Share of the longest bar from which on a step's own number fits into it."""


def tune_plots(tune: Json, arms: Sequence[str]) -> list[Plot]:
    """All plots of a `ddtool.tune/1`. arms: in the page's order, which gives them their colours."""
    made: list[Plot | None] = [
        *(budgets(curve, arms, f"budgets{index}") for index, curve in enumerate(budget_curves(tune))),
        *(verify(same, f"verify{index}") for index, same in enumerate(alike(verify_curves(tune)))),
        split(tune, "split"),
        experts(tune, "experts"),
    ]
    return [each for each in made if each is not None]


def budgets(curve: BudgetCurve, arms: Sequence[str], prefix: str) -> Plot | None:
    """tok/s by budget: what was predicted as a line, what was measured as points, the chain as a level."""
    trees = [arm for arm in curve.arms if budget_of(arm)[0] is not None]
    if sum(arm in curve.predicted for arm in trees) < 2:
        return None
    with axes() as ax:
        labels = [*predictions(ax, curve, trees), *level(ax, curve, arms)]
        for arm in trees:
            budget, at = budget_of(arm)[0], curve.measured.get(arm)
            if budget is not None and at is not None and arm in arms:
                index = arms.index(arm)
                behind = [at, *curve.behind.get(arm, [])]
                apart = [[at - min(behind)], [max(behind) - at]]
                ax.errorbar(
                    budget, at, apart, color=arm_colour(index), marker=marker(index), capsize=2, zorder=3
                )
        ax.margins(x=0.06, y=0.12)
        ax.set_xlabel("budget (points: measured)")
        ax.set_ylabel("output tok/s")
        label_points(ax, labels)
        alt = "; ".join(
            f"{plain_text(arm)} predicted {number(curve.predicted.get(arm))}, "
            f"measured {number(curve.measured.get(arm))}"
            for arm in curve.telling
        )
        return plot(ax, f"Budget curve: {curve.where}", alt, prefix)


def predictions(ax: Axes, curve: BudgetCurve, trees: Sequence[str]) -> list[Label]:
    """A line through the predicted trees of each topk; a hollow point where there is one alone."""
    by_topk: dict[int | None, list[tuple[int, float]]] = {}
    for arm in trees:
        budget, topk = budget_of(arm)
        if budget is not None and arm in curve.predicted:
            by_topk.setdefault(topk, []).append((budget, curve.predicted[arm]))
    labels: list[Label] = []
    for style, (topk, points) in zip(cycle(STYLES), by_topk.items(), strict=False):
        if len(points) == 1:
            ax.plot(*points[0], color=MUTED, marker="o", fillstyle="none")
            continue
        ax.plot(*zip(*points, strict=True), color=MUTED, linestyle=style, zorder=2)
        labels.append((points[-1][1], "predicted" if topk is None else f"pred., topk {topk}", MUTED))
    return labels


def level(ax: Axes, curve: BudgetCurve, arms: Sequence[str]) -> list[Label]:
    """The chain, measured and predicted, as lines across; what to write at their ends."""
    if "chain" not in arms:
        return []
    colour, labels = arm_colour(arms.index("chain")), []
    for values, style, name in (
        (curve.measured, "-", "chain"),
        (curve.predicted, (0, (2, 2)), "chain, pred."),
    ):
        if "chain" in values:
            ax.axhline(values["chain"], color=colour, linestyle=style, linewidth=1.3)
            labels.append((values["chain"], name, colour))
    return labels


def alike(curves: Sequence[VerifyCurve]) -> list[list[VerifyCurve]]:
    """The curves that differ in their concurrency alone, together."""
    found: dict[Where, list[VerifyCurve]] = {}
    for curve in curves:
        found.setdefault(replace(curve.where, concurrency=None), []).append(curve)
    return list(found.values())


def verify(curves: Sequence[VerifyCurve], prefix: str) -> Plot | None:
    """ms of a verify by its width: points as measured, lines as fitted; a line for each concurrency."""
    labels, told, fitted = [], [], False
    with axes() as ax:
        for index, curve in enumerate(curves):
            rows = [
                row for row in curve.rows if row.get("verify_ms") is not None and row.get("width") is not None
            ]
            if not rows:
                continue
            widths, ms = [row["width"] for row in rows], [row["verify_ms"] for row in rows]
            colour = step_colour(index)
            ax.plot(widths, ms, color=colour, marker=marker(index), linestyle="none")
            line = [(row["width"], row["fitted_ms"]) for row in rows if row.get("fitted_ms") is not None]
            if line:
                ax.plot(*zip(*line, strict=True), color=colour, linewidth=1.3)
                fitted = True
            labels.append((ms[-1], f"{number(curve.where.concurrency)} at a time", colour))
            told.append(
                f"{curve.where}: {number(ms[0])} at width {widths[0]}, {number(ms[-1])} at {widths[-1]}"
            )
        if not labels:
            return None
        ax.set_ylim(bottom=0)
        ax.set_xlim(left=0)
        ax.set_xlabel("width verified, tokens" + (" (line: fitted)" if fitted else ""))
        ax.set_ylabel(f"{verify_name(row for curve in curves for row in curve.rows)}, ms")
        label_points(ax, labels)
        rest = str(replace(curves[0].where, concurrency=None))
        return plot(ax, "Cost of a verify" + (f": {rest}" if rest else ""), "ms. " + "; ".join(told), prefix)


def split(tune: Json, prefix: str) -> Plot | None:
    """Where a round's time goes: a bar for each arm, a piece for each step."""
    arms, steps, spent = steps_of(tune)
    if not arms:
        return None
    most = max(sum(each.values()) for each in spent.values())
    lines = 1 if sum(len(step) + 4 for step in steps) <= LEGEND else -(-len(steps) // 2)
    top = 0.22 + 0.18 * lines
    with axes(height=0.55 + top + 0.34 * len(arms), left=0.95, right=0.55, top=top) as ax:
        for place, arm in enumerate(reversed(arms)):
            start = 0.0
            for index, step in enumerate(steps):
                ms = spent[arm].get(step, 0.0)
                ax.barh(
                    place,
                    ms,
                    left=start,
                    height=0.7,
                    color=step_colour(index),
                    label=plain_text(step) if not place else None,
                )
                if ms >= LEGIBLE * most:
                    ax.annotate(
                        number(ms),
                        (start + ms / 2, place),
                        ha="center",
                        va="center",
                        color=PAPER,
                        fontsize=8,
                    )
                start += ms
            ax.annotate(
                number(start), (start, place), (4, 0), textcoords="offset points", va="center", color=INK
            )
        no_frame(ax, [short(arm) for arm in reversed(arms)])
        ax.grid(visible=True, axis="x", color=GRID)
        ax.set_xlabel("ms a round")
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.25, 1.0),
            ncols=len(steps) if lines == 1 else 2,
            handlelength=0.9,
            handletextpad=0.4,
            columnspacing=1.0,
        )
        alt = "; ".join(
            f"{plain_text(arm)}: "
            + ", ".join(f"{plain_text(step)} {number(ms)}" for step, ms in spent[arm].items())
            for arm in arms
        )
        return plot(ax, "Time of a round", "ms. " + alt, prefix)


def experts(tune: Json, prefix: str) -> Plot | None:
    """Distinct experts by width."""
    rows = [
        row
        for row in tune.get("experts") or []
        if row.get("width") is not None and row.get("distinct") is not None
    ]
    if len(rows) < 2:
        return None
    widths, everything = [row["width"] for row in rows], rows[-1].get("of")
    labels: list[Label] = []
    with axes() as ax:
        ax.plot(widths, [row["distinct"] for row in rows], color=step_colour(0), marker="o")
        if all(row.get("independent") is not None for row in rows) and not rows[-1].get("bound"):
            alone = [row["independent"] for row in rows]
            ax.plot(widths, alone, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2)
            labels += [
                (alone[-1], "if routed alone", MUTED),
                (rows[-1]["distinct"], "measured", step_colour(0)),
            ]
        if everything:
            ax.axhline(everything, color=MUTED, linewidth=1)
            labels.append((everything, f"all {number(everything)}", MUTED))
        ax.set_xlim(left=0)
        ax.set_ylim(0, max(ax.get_ylim()[1], everything or 0) * 1.05)
        label_points(ax, labels)
        ax.set_xlabel("width verified, tokens")
        ax.set_ylabel("distinct experts read")
        alt = "; ".join(f"{number(row['distinct'])} at width {row['width']}" for row in rows)
        return plot(ax, "Experts that a verify reads", alt, prefix)
