"""Ranks in a verdict: whose line one is, and the table of how far each rank had come and what it said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddtool.crash.hits import Hit
from ddtool.crash.judge import Finding
from ddtool.crash.model import Line
from ddtool.crash.scene import Scene
from ddtool.crash.wording import gist


def rank_of(line: Line, scene: Scene) -> int | None:
    """The rank that the line names, or its traceback."""
    if line.rank is not None:
        return line.rank
    block = scene.chain(line)
    return block.rank if block else None


def table(finding: Finding, gone: int | None = None) -> Iterator[dict[str, Any]]:
    """Rows `{rank, phase, line, text, first}`: the phase that a rank had reached and the first thing that it said
    about the failure. First is `gone`, a rank that is known to have gone before anybody spoke, else who spoke first.
    """
    scene, cause = finding.scene, finding.cause
    said: dict[int, Hit] = {}
    for hit in finding.hits:
        rank = rank_of(hit.line, scene)
        speaks = hit.signature.role in ("root", "cascade") and (cause is None or hit.number >= cause.number)
        if rank is not None and speaks:
            said.setdefault(rank, hit)
    if cause and (rank := rank_of(cause.line, scene)) is not None:
        said[rank] = cause
    for rank in sorted({*said, *(rank for rank in scene.attempt.phases if rank is not None)}):
        own = said.get(rank)
        yield {
            "rank": rank,
            "phase": _phase_of(rank, own or cause, scene),
            "line": own.number if own else None,
            "text": gist(own.line.text) if own else None,
            "first": rank == gone if gone is not None else own is not None and own is cause,
        }


def _phase_of(rank: int, told: Hit | None, scene: Scene) -> str:
    """The last phase that a rank announced; ranks that announce none were where the others were at the time."""
    own = [phase for _, phase in scene.attempt.phases.get(rank, ()) if phase != "ended"]
    if own:
        return own[-1]
    over = (number for steps in scene.attempt.phases.values() for number, phase in steps if phase == "ended")
    last = min(over, default=scene.lines[-1].number + 1) - 1
    return scene.attempt.phase_at(min(told.number, last) if told else last)
