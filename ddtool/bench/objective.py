"""Is the profile's objective met? Judged on the profile's own arm, at the objective's concurrency. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.profile.schema import Objective

Json = dict[str, Any]


def judge(objective: Objective | None, own: str | None, cells: Sequence[Mapping[str, Any]]) -> Json | None:
    """`{tok_s, concurrency, arm, cell, measured, met}`; None when there is no objective, or it was not measured.

    `cells`: of the result. With several workloads each has to meet it: the slowest one is what is judged.
    """
    if objective is None or own is None:
        return None
    measured = [
        (float(cell["arms"][own]["tok_s"]["median"]), str(cell["cell"]["key"]))
        for cell in cells
        if cell["cell"]["concurrency"] == objective.concurrency and own in cell["arms"]
        if cell["arms"][own]["tok_s"]["median"] is not None
    ]
    if not measured:
        return None
    slowest, key = min(measured)
    return {
        "tok_s": objective.tok_s,
        "concurrency": objective.concurrency,
        "arm": own,
        "cell": key,
        "measured": round(slowest, 2),
        "met": slowest >= objective.tok_s,
    }


def not_judged(
    objective: Objective | None, own: str | None, concurrencies: Sequence[int | None]
) -> str | None:
    """Why this run will not judge the objective; None when it will, or when there is none."""
    if objective is None:
        return None
    wanted = f"the objective of {objective.tok_s:g} tok/s at concurrency {objective.concurrency}"
    if own is None:
        return f"{wanted} is not judged: the profile's own arm does not take part"
    if objective.concurrency not in concurrencies:
        return f"{wanted} is not judged: --concurrency {objective.concurrency} would measure it"
    return None
