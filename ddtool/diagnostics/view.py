"""What a host says about its diagnostics, as rows for a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

State = Mapping[str, Any]


def patch_rows(state: State) -> list[tuple[str, str, str, str]]:
    """(name, on disk, loaded, why) of each enabled patch; `state` is the agent's `diag.state`."""
    rows = []
    for patch in state["patches"]:
        disk = (
            "lost by upgrade" if patch["lost"] else "yes" if patch["on_disk"] else "no: the file was changed"
        )
        if patch["expired"]:
            disk += f", expired {patch['expires']}"
        rows.append((patch["name"], disk, loaded(patch, state["ranks"]), patch["why"] or ""))
    return rows


def loaded(patch: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> str:
    """`by ranks 0-7`, `by ranks 0-3, not by 4-7: needs a restart`, or `the service does not run`."""
    if not ranks:
        return "the service does not run"
    have = sorted(set(patch["loaded"]))
    lack = sorted({row["rank"] for row in ranks} - set(have))
    if not have:
        return f"by none of {len(ranks)} ranks: needs a restart"
    text = f"by {spans(have)}"
    return f"{text}, not by {spans(lack)}: needs a restart" if lack else text


def leftover_rows(state: State) -> list[tuple[str, str]]:
    """(patch, ranks) that still run though they are not on disk any more."""
    stale: dict[str, list[int]] = {}
    for row in state["ranks"]:
        for name in row["stale"]:
            stale.setdefault(name, []).append(row["rank"])
    return [(name, spans(sorted(set(ranks)))) for name, ranks in sorted(stale.items())]


def spans(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-3, 7`. The numbers are sorted."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank {text}" if len(numbers) == 1 else f"ranks {text}"


def headline(state: State) -> str:
    """One sentence: what is on, and what that needs."""
    active = [patch["name"] for patch in state["patches"] if patch["on_disk"]]
    stale = leftover_rows(state)
    if not state["patches"] and not stale:
        return "no diagnostic is enabled"
    what = f"enabled: {', '.join(active)}" if active else "no diagnostic is on disk"
    return f"{what}; a restart is needed" if state["restart_needed"] else what


def by_group(files: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """state → files, for a short listing of managed files."""
    grouped: dict[str, list[str]] = {}
    for item in files:
        grouped.setdefault(item["state"], []).append(item["file"])
    return grouped
