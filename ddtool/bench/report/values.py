"""Reading a result and writing its numbers: what the terminal and the page have in common.

A result may lack anything: an arm that failed has no numbers, a run without lossless samples no verdicts. Whatever is
missing reads as None here and is left out, or shown as a dash, there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
BASE_ARMS = {"plain": 0, "chain": 1}


def plain_text(value: object) -> str:
    """Somebody else's text on one line, without what a terminal would obey or what would turn its letters around."""
    return " ".join(CONTROL.sub("", ESCAPE.sub("", str(value))).split())


def plain_lines(value: object) -> str:
    """Somebody else's text with its lines, to be copied, otherwise as `plain_text`."""
    return CONTROL.sub("", ESCAPE.sub("", str(value))).rstrip()


def look(value: Any, *path: str) -> Any:
    """`value[path[0]][path[1]]…`, or None where one of them is missing."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def number(value: float | int | None, missing: str = "–") -> str:
    """Three figures, or all of them before the point: `0.153`, `4.12`, `23.7`, `1446`. A count stays whole."""
    if value is None:
        return missing
    if isinstance(value, int) or value == 0 or (value.is_integer() and abs(value) >= 100):
        return str(int(value))
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def share(value: float | None, missing: str = "–") -> str:
    """`3.4 %`"""
    return missing if value is None else f"{value:.1%}".replace("%", " %")


def times(value: float | None, missing: str = "–") -> str:
    """A ratio with the three places that decide between arms: `1.034`."""
    return missing if value is None else f"{value:.3f}"


def arms_of(results: Iterable[Json]) -> list[str]:
    """Every arm of these cells, in one order everywhere: plain, chain, trees by budget, the others as they come."""
    found = dict.fromkeys(arm for cell in results for arm in cell.get("arms") or {})
    return sorted(found, key=arm_order)


def arm_order(arm: str) -> tuple[int, int, int]:
    """plain, chain, `tree:BUDGET[:TOPK]` by budget and topk; whatever else comes last, in the order it came in."""
    if arm in BASE_ARMS:
        return (BASE_ARMS[arm], 0, 0)
    budget, topk = budget_of(arm)
    return (3, 0, 0) if budget is None else (2, budget, topk or 0)


def budget_of(arm: str) -> tuple[int | None, int | None]:
    """Budget and topk of `tree:12` and `tree:12:4`; None where the arm does not say."""
    matched = re.fullmatch(r"tree:(\d{1,6})(?::(\d{1,6}))?", arm)
    if not matched:
        return None, None
    return int(matched[1]), int(matched[2]) if matched[2] else None


def workloads_of(cells: Iterable[Json]) -> list[list[Json]]:
    """The cells that differ by their load alone, together, in the order they came."""
    found: dict[tuple[str, str], list[Json]] = {}
    for cell in cells:
        where = cell.get("cell") or {}
        found.setdefault((str(where.get("workload")), str(where.get("temperature") or 0.0)), []).append(cell)
    return list(found.values())


def workload_name(cell: Json) -> str:
    """`code`, and its temperature where that is not 0."""
    where = cell.get("cell") or {}
    warm = f", T={where['temperature']:g}" if where.get("temperature") else ""
    return plain_text(where.get("workload", "")) + warm


def pooled(cells: Iterable[Json]) -> dict[str, dict[int, int]]:
    """Rounds by the tokens they gave, of each arm that has them, over all these cells."""
    cells = list(cells)
    counts: dict[str, dict[int, int]] = {}
    for arm in arms_of(cells):
        for cell in cells:
            for length, rounds in (look(cell, "arms", arm, "accept", "histogram") or {}).items():
                of_arm = counts.setdefault(arm, {})
                of_arm[int(length)] = of_arm.get(int(length), 0) + rounds
    return counts


def pooled_mean(cells: Iterable[Json], arm: str) -> float | None:
    """Tokens a round over all these cells, each by its number of rounds."""
    return _weighted([(look(cell, "arms", arm, "accept", "mean"), rounds_of(cell, arm)) for cell in cells])


def pooled_depths(cells: Sequence[Json], arm: str) -> list[float]:
    """Share of rounds that reached depth 1, 2, … over all these cells."""
    found = [(look(cell, "arms", arm, "accept", "by_depth") or [], rounds_of(cell, arm)) for cell in cells]
    deepest = max((len(shares) for shares, _ in found), default=0)
    depths = [
        _weighted(
            [(shares[depth] if depth < len(shares) else 0.0, rounds) for shares, rounds in found if shares]
        )
        for depth in range(deepest)
    ]
    return [each for each in depths if each is not None]


def rounds_of(cell: Json, arm: str) -> int:
    """How many rounds an arm had in a cell."""
    return look(cell, "arms", arm, "verify_steps") or 1


def _weighted(values: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def load(cell: Json) -> str:
    """What a cell asked of the server: `16 at a time`, `2.5 requests/s`."""
    if cell.get("rate") is not None:
        return f"{cell['rate']:g} requests/s"
    concurrency = cell.get("concurrency")
    return "one at a time" if concurrency == 1 else f"{number(concurrency)} at a time"


def described(cell: Json) -> str:
    """A cell in words: workload, load, temperature, how much of it."""
    parts = [plain_text(cell.get("workload", "")), load(cell), f"T={cell.get('temperature') or 0:g}"]
    if cell.get("prompts") is not None:
        parts.append(f"{cell['prompts']} prompts")
    if cell.get("max_tokens") is not None:
        parts.append(f"up to {cell['max_tokens']} tokens")
    return ", ".join(parts)


def heading(cell: Json) -> str:
    """`code-c16: code, 16 at a time, T=0, 32 prompts`"""
    return f"{plain_text(look(cell, 'cell', 'key'))}: {described(cell.get('cell') or {})}"


def ratio_of(cell: Json, arm: str) -> Json | None:
    """The arm's ratio of tok/s to its base in this cell."""
    for row in cell.get("ratios") or []:
        if row.get("arm") == arm and row.get("metric") == "tok_s":
            found: Json = row
            return found
    return None


def base_of(cell: Json) -> str:
    """What the arms of a cell are compared with."""
    for row in cell.get("ratios") or []:
        if row.get("metric") == "tok_s":
            return plain_text(row.get("base", "chain"))
    return "chain"


def taints_of(result: Json, arm: str) -> list[str]:
    """The taints that name this arm."""
    name = re.compile(rf"(?<![\w:]){re.escape(arm)}(?![\w:]*\w)")
    return [taint for taint in result.get("taints") or [] if name.search(str(taint))]


@dataclass(frozen=True)
class Where:
    """What a curve of a tuning run holds fixed; None for what does not matter to it."""

    workload: str | None
    concurrency: int | None
    context: int | None

    def __str__(self) -> str:
        parts = [
            plain_text(self.workload) if self.workload is not None else "",
            f"concurrency {number(self.concurrency)}" if self.concurrency is not None else "",
            f"context {number(self.context)}" if self.context is not None else "",
        ]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class VerifyCurve:
    """Rows of `verify`, by width."""

    where: Where
    rows: list[Json]


@dataclass(frozen=True)
class BudgetCurve:
    """tok/s by arm. behind: the values that a measured median is of."""

    where: Where
    predicted: dict[str, float]
    measured: dict[str, float]
    behind: dict[str, list[float]]

    @property
    def arms(self) -> list[str]:
        return sorted({*self.predicted, *self.measured}, key=arm_order)

    @property
    def telling(self) -> list[str]:
        """The arms without which it cannot be judged: what was measured, what trees stand against, and the best."""
        best = max(self.predicted, key=lambda arm: self.predicted[arm], default=None)
        return [arm for arm in self.arms if arm in self.measured or arm in BASE_ARMS or arm == best]


def where_of(row: Json) -> Where:
    return Where(row.get("workload"), row.get("concurrency"), row.get("context"))


def verify_curves(tune: Json) -> list[VerifyCurve]:
    found: dict[Where, list[Json]] = {}
    for row in tune.get("verify") or []:
        found.setdefault(where_of(row), []).append(row)
    return [
        VerifyCurve(where, sorted(rows, key=lambda row: float(row.get("width") or 0)))
        for where, rows in found.items()
    ]


def budget_curves(tune: Json) -> list[BudgetCurve]:
    found: dict[Where, BudgetCurve] = {}
    for kind in ("predicted", "measured"):
        for row in tune.get(kind) or []:
            curve = found.setdefault(where_of(row), BudgetCurve(where_of(row), {}, {}, {}))
            arm = str(row.get("arm"))
            if row.get("tok_s") is not None:
                getattr(curve, kind)[arm] = row["tok_s"]
            if row.get("values"):
                curve.behind[arm] = row["values"]
    return list(found.values())


def arms_in(tune: Json) -> list[str]:
    """Every arm that a tuning run ran, in the one order. What it only predicted has no place of its own."""
    names = [str(row.get("arm")) for kind in ("measured", "split") for row in tune.get(kind) or []]
    return sorted(dict.fromkeys(names), key=arm_order)


def difference(predicted: float | None, measured: float | None) -> float | None:
    """How far a prediction is from what was measured, relative to that."""
    return predicted / measured - 1 if predicted is not None and measured else None


def verify_name(rows: Iterable[Json]) -> str:
    """What `verify_ms` of a tuning answer is: without a draft that was timed, the draft is in it."""
    return "verify" if any(row.get("draft_ms") is not None for row in rows) else "draft and verify"


def steps_of(tune: Json) -> tuple[list[str], list[str], dict[str, dict[str, float]]]:
    """Arms, steps of a round in their order, and ms by arm and step."""
    spent: dict[str, dict[str, float]] = {}
    for row in tune.get("split") or []:
        if row.get("ms") is not None:
            spent.setdefault(str(row.get("arm")), {})[str(row.get("step"))] = row["ms"]
    steps = dict.fromkeys(step for each in spent.values() for step in each)
    return sorted(spent, key=arm_order), list(steps), spent


def judged(objective: Json) -> str:
    """`Objective met: 181 tok/s of tree:16 in code-c1, 150 wanted at concurrency 1`"""
    where = "".join(
        f" {word} {plain_text(objective[key])}"
        for word, key in (("of", "arm"), ("in", "cell"))
        if objective.get(key)
    )
    return (
        f"Objective {'met' if objective.get('met') else 'missed'}: "
        f"{number(objective.get('measured'), 'nothing')} tok/s{where}, "
        f"{number(objective.get('tok_s'))} wanted at concurrency {number(objective.get('concurrency'))}"
    )


def advice(tune: Json) -> str:
    """`Use tree:12 at concurrency 1: 3.4 % faster than the chain`"""
    arm, concurrency, gain = (
        look(tune, "recommendation", key) for key in ("arm", "concurrency", "gain_over_chain")
    )
    words = f"Use {'the chain' if arm == 'chain' else plain_text(arm)} at concurrency {number(concurrency)}"
    if not gain or arm == "chain":
        return words
    return f"{words}: {share(abs(gain))} {'faster' if gain > 0 else 'slower'} than the chain"
