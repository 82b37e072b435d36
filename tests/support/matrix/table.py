"""The cells of a folder as one table, and that table in docs/faults.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from support.matrix.injections import INJECTIONS
from support.matrix.verbs import VERBS

SHORT = {"finished": "F", "undone": "U", "refused, nothing touched": "R"}
BEGIN, END = "<!-- begin: written by tests/host/fault_matrix.py -->", "<!-- end -->"
Cell = dict[str, Any]


def cells(folder: Path) -> list[Cell]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*-on-*.json"))]


def losses(folder: Path) -> list[str]:
    """`VERB × FAULT: what` of every broken promise."""
    return [f"{cell['verb']} × {cell['fault']}: {cell['outcome']}" for cell in cells(folder) if is_loss(cell)]


def write(folder: Path) -> str:
    """`matrix.md` in the folder, from what is there."""
    text = page(cells(folder))
    (folder / "matrix.md").write_text(text)
    return text


def put_into(document: Path, table: str) -> None:
    """The table between the two marks of a page."""
    head, _, rest = document.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    document.write_text(f"{head}{BEGIN}\n\n{table}\n{END}{tail}")


def page(found: list[Cell]) -> str:
    by_place = {(cell["verb"], cell["fault"]): cell for cell in found}
    faults = [name for name in INJECTIONS if any(place[1] == name for place in by_place)]
    lines = [summary(found), "", "| | " + " | ".join(faults) + " |", "|---" * (len(faults) + 1) + "|"]
    for verb in VERBS:
        if any(place[0] == verb for place in by_place):
            row = [shown(by_place.get((verb, fault))) for fault in faults]
            lines.append(f"| `{verb}` | " + " | ".join(row) + " |")
    notes = sorted(note(cell) for cell in found if not cell["points"])
    return "\n".join([*lines, "", *(f"- {item}" for item in notes)]).rstrip() + "\n"


def is_loss(cell: Cell) -> bool:
    return "LOSS" in cell["outcome"]


def shown(cell: Cell | None) -> str:
    if cell is None:
        return "not run"
    if is_loss(cell):
        return "**LOSS**"
    counts = Counter(SHORT[point["end"]] for point in cell["points"])
    return " ".join(f"{letter}{count}" for letter, count in sorted(counts.items())) or "–"


def note(cell: Cell) -> str:
    return f"–: {cell['verb']} × {cell['fault']}: {cell['outcome']}"


def summary(found: list[Cell]) -> str:
    points = [point for cell in found for point in cell["points"]]
    ends = Counter(point["end"].partition(":")[0] for point in points)
    told = ", ".join(f"{count} {end}" for end, count in ends.most_common())
    empty = sum(not cell["points"] for cell in found)
    late = sum(point.get("reached") is False for point in points)
    idle = sum("missed" in point for point in points)
    return (
        f"{len(found)} of {len(VERBS) * len(INJECTIONS)} cells, {empty} of them not applicable. {len(points)} faults: "
        f"{told}. {late} of them came when the command was over, {idle} found no service running to strike. "
        f"Losses: {sum(map(is_loss, found))}."
    )
