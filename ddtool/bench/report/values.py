"""Reading a result and writing its numbers: what the terminal and the page have in common.

A result may lack anything: an arm that failed has no numbers, a run without lossless samples no verdicts. Whatever is
missing reads as None here and is left out, or shown as a dash, there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
BASE_ARMS = {"plain": 0, "chain": 1}


def plain_text(value: object) -> str:
    """Somebody else's text on one line, without what a terminal would obey or what would turn its letters around."""
    return " ".join(CONTROL.sub("", ESCAPE.sub("", str(value))).split())


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
    if isinstance(value, int) or (value == int(value) and abs(value) >= 100):
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
    warm = f", T={number(where['temperature'])}" if where.get("temperature") else ""
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


def load(cell: Json) -> str:
    """What a cell asked of the server: `16 at a time`, `2.5 requests/s`."""
    if cell.get("rate") is not None:
        return f"{number(cell['rate'])} requests/s"
    concurrency = cell.get("concurrency")
    return "one at a time" if concurrency == 1 else f"{number(concurrency)} at a time"


def described(cell: Json) -> str:
    """A cell in words: workload, load, temperature, how much of it."""
    parts = [plain_text(cell.get("workload", "")), load(cell), f"T={number(cell.get('temperature') or 0)}"]
    if cell.get("prompts") is not None:
        parts.append(f"{cell['prompts']} prompts")
    if cell.get("max_tokens") is not None:
        parts.append(f"up to {cell['max_tokens']} tokens")
    return ", ".join(parts)


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
