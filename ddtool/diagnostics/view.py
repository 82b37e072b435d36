"""What a host says about its diagnostics, as rows for a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

State = Mapping[str, Any]


def patch_rows(state: State) -> list[tuple[str, str, str, str, str]]:
    """(name, on disk, loaded, reached, why) of each enabled patch; `state` is the agent's `diag.state`."""
    rows = []
    for patch in state["patches"]:
        disk = (
            "lost by upgrade" if patch["lost"] else "yes" if patch["on_disk"] else "no: the file was changed"
        )
        disk += expiry(patch)
        rows.append((patch["name"], disk, loaded(patch, state["ranks"]), reached(patch), patch["why"] or ""))
    return rows


def expiry(patch: Mapping[str, Any]) -> str:
    """`, until 2026-12-13`, `, expired 2026-12-13`, or nothing for a patch without one."""
    if not patch["expires"]:
        return ""
    return f", {'expired' if patch['expired'] else 'until'} {patch['expires']}"


def banner(state: State) -> str | None:
    """One line for whoever reads logs or figures of a service with diagnostics; None without any."""
    named = [
        f"{patch['name']} ({loaded(patch, state['ranks'])}{expiry(patch)})"
        for patch in state["patches"]
        if patch["kind"] == "diagnostic"
    ]
    named += [f"{name} (off, but {ranks} still run it)" for name, ranks in leftover_rows(state)]
    return f"diagnostics: {'; '.join(named)}" if named else None


def loaded(patch: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> str:
    """`by ranks 0-7`, `by ranks 0-3, not by ranks 4-7: needs a restart`, or `the service does not run`."""
    if not ranks:
        return "the service does not run"
    have = sorted(set(patch["loaded"]))
    lack = sorted({row["rank"] for row in ranks} - set(have))
    if not have:
        return f"by none of {len(ranks)} ranks: needs a restart"
    text = f"by {spans(have)}"
    return f"{text}, not by {spans(lack)}: needs a restart" if lack else text


def reached(patch: Mapping[str, Any]) -> str:
    """The ranks that have loaded it and in which its code has run: `by ranks 0-3`, `not yet`, or `-` where none has."""
    if not patch["loaded"]:
        return "-"
    return f"by {spans(sorted(set(patch['reached'])))}" if patch["reached"] else "not yet"


def outdated(state: State, shipped: Mapping[str, str]) -> list[str]:
    """Names of enabled patches whose code is not this ddtool's; `shipped`: name → sha of those that it ships."""
    return [
        patch["name"]
        for patch in state["patches"]
        if shipped.get(patch["name"], patch["sha"]) != patch["sha"]
    ]


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


def outcome_line(seen: Mapping[str, Any]) -> str:
    """`graph-copy: fired. Hypothesis confirmed: …`; `seen` is the experiment in the result of `diag run`."""
    text = f"{seen['patch']}: {seen['outcome']}. Hypothesis {seen['conclusion']}"
    said = seen["hypothesis"] or seen["why"]
    return f"{text}: {said}" if said else text


def outcome_details(seen: Mapping[str, Any]) -> list[str]:
    """Sentences about how the run went, the outcome's evidence."""
    by = f"loaded by {loaders(seen['loaded_by'])}, its code reached by {loaders(seen['reached_by'])}"
    lines = [f"{by}; got as far as: {seen['phase']}"]
    by_rank = {rank: phase for rank, phase in seen["ranks"].items() if rank}
    if len(set(by_rank.values())) > 1:
        reached = ", ".join(f"rank {rank} {phase}" for rank, phase in sorted(by_rank.items()))
        lines.append(f"its ranks got to different points: {reached}")
    if seen["asked"]:
        good = sum(item["status"] == 200 for item in seen["requests"])
        lines.append(f"{good} of {seen['asked']} requests answered")
    if seen["ended"]:
        lines.append(
            f"the unit ended: result {seen['ended']['result']}, exit status {seen['ended']['exit_status']}"
        )
    if seen["evidence"]:
        lines.append(f"evidence on the host: {seen['evidence']['folder']}")
    return lines


def loaders(processes: Sequence[Mapping[str, Any]]) -> str:
    """`ranks 0-7`, `none`, or how many processes, when a crash came before anybody looked at their titles."""
    ranks = sorted({item["rank"] for item in processes if item["rank"] is not None})
    if ranks:
        return spans(ranks)
    if not processes:
        return "none"
    return f"{len(processes)} process{'' if len(processes) == 1 else 'es'}"


def event_rows(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """(event, worker, rank, fields) of each marker."""
    common = ("patch", "sha", "event", "worker", "rank", "pid")
    rows = []
    for item in events:
        fields = ", ".join(f"{key} {value}" for key, value in item.items() if key not in common)
        worker, rank = ("-" if one is None else str(one) for one in (item.get("worker"), item.get("rank")))
        rows.append((str(item.get("event")), worker, rank, fields))
    return rows
