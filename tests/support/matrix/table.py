"""The cells of a folder as one table."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from support.matrix.injections import INJECTIONS
from support.matrix.verbs import VERBS

SHORT = {
    "finished": "F",
    "undone": "U",
    "refused, nothing touched": "R",
}


def cells(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*-on-*.json"))]


def losses(folder: Path) -> list[str]:
    return [
        f"{cell['verb']} × {cell['fault']}: {cell['outcome']}"
        for cell in cells(folder)
        if "LOSS" in cell["outcome"]
    ]


def write(folder: Path) -> str:
    """`matrix.md` in the folder, from what is there."""
    text = page(cells(folder))
    (folder / "matrix.md").write_text(text)
    return text


def page(found: list[dict[str, Any]]) -> str:
    by_place = {(cell["verb"], cell["fault"]): cell for cell in found}
    faults = [name for name in INJECTIONS if any(place[1] == name for place in by_place)]
    lines = [summary(found), ""]
    lines.append("| | " + " | ".join(faults) + " |")
    lines.append("|---" * (len(faults) + 1) + "|")
    for verb in VERBS:
        if any(place[0] == verb for place in by_place):
            row = [shown(by_place.get((verb, fault))) for fault in faults]
            lines.append(f"| {verb} | " + " | ".join(row) + " |")
    notes = sorted({note(cell) for cell in found if cell["outcome"].startswith("not applicable")})
    return "\n".join([*lines, "", *(f"{item}  " for item in notes)]).rstrip() + "\n"


def shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    if cell["outcome"].startswith("not applicable"):
        return "–"
    if "LOSS" in cell["outcome"]:
        return "**LOSS**"
    counts = Counter(SHORT[point["end"]] for point in cell["points"])
    return " ".join(f"{letter}{count}" for letter, count in sorted(counts.items()))


def note(cell: dict[str, Any]) -> str:
    return f"– {cell['verb']} × {cell['fault']}: {cell['outcome'].partition(': ')[2]}"


def summary(found: list[dict[str, Any]]) -> str:
    points = [point for cell in found for point in cell["points"]]
    ends = Counter(point["end"].partition(":")[0] for point in points)
    told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    empty = sum(not cell["points"] for cell in found)
    missed = sum(point.get("reached") is False for point in points)
    return (
        f"{len(found)} cells, {empty} of them not applicable; {len(points)} faults injected, at chosen acts of the "
        f"command's executor ({missed} came after its end): {told}. "
        f"Losses: {sum('LOSS' in cell['outcome'] for cell in found)}."
    )
