"""A run that nobody ended because it hung: how far it had come, and where its processes stood."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ddtool.crash.bundle import JOURNAL, PROCESSES, Bundle
from ddtool.crash.model import PHASES, Verdict

# The evidence's `result` when the gate took the service down, or nobody did.
GATE, RUNNING = "gate", "running"
STACKS = "*.stacks"
WITH_STACKS = (
    "Look at where its processes stand: one that stands elsewhere than the others is the one that they wait for; "
    "if all wait for each other, look for a GPU or a link that is gone."
)

# What the gate says of a service that does not answer in time; its other reasons are about answers.
_NO_ANSWER = re.compile(r" not ready after | got no answer within | took longer than |^diag run \S+: hung")
_PROCESS = re.compile(
    r"^\s*(\d+)\s.*?\bsglang(?:::scheduler(?P<where>\S*)|::(?P<other>\w+)|\.launch_server)", re.MULTILINE
)
_RANK = re.compile(r"_TP(\d+)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def hung(manifest: dict[str, Any]) -> bool:
    return manifest.get("result") == GATE and bool(_NO_ANSWER.search(str(manifest.get("why"))))


def phase(bundle: Bundle) -> str:
    """The last phase of a start that the journal shows, of whichever rank came furthest."""
    from ddtool.crash.attempts import attempts
    from ddtool.crash.source import read

    found = attempts(list(read(io.BytesIO(bundle.files.get(JOURNAL, b"")))))
    steps = [step for steps in found[-1].phases.values() for _, step in steps] if found else []
    reached = [step for step in steps if step != "ended"]
    return max(reached, key=PHASES.index) if reached else PHASES[0]


def with_stacks(verdict: Verdict, bundle: Bundle) -> Verdict:
    """The sentence says where each process stood, those in the same place together."""
    places: dict[str, list[str]] = {}
    for who, place in standing(bundle):
        places.setdefault(place, []).append(who)
    if not places:
        return replace(
            verdict, missing=(*verdict.missing, "stacks of the processes (the host probe takes them)")
        )
    said = "; ".join(f"{', '.join(who)}: {place}" for place, who in places.items())
    missing = tuple(item for item in verdict.missing if not item.startswith("a traceback"))
    return replace(
        verdict, cause=f"{verdict.cause.rstrip('.')}; stacks: {said}.", missing=missing, remedy=WITH_STACKS
    )


def standing(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """(rank or process, where its main thread stood), as faulthandler wrote it down.

    The innermost frame outside of the standard library: that a process waits in threading.py says nothing.
    """
    names = dict(process_names(bundle.files.get(PROCESSES, b"").decode(errors="replace")))
    files = {name.partition("-")[0]: data for name, data in bundle.files.items() if name.endswith(STACKS[1:])}
    for pid in sorted(files, key=lambda pid: (len(pid), pid)):
        main = files[pid].decode(errors="replace").rpartition("Current thread")[2]
        frames = [found for found in map(_FRAME.match, main.splitlines()) if found]
        ours = [found for found in frames if "-packages/" in found[1]]
        frame = next(iter(ours or frames), None)
        where = f"{short(frame[1])}:{frame[2]} {frame[3]}" if frame else "no Python frame"
        yield names.get(pid, f"pid {pid}"), where


def process_names(listing: str) -> Iterator[tuple[str, str]]:
    """pid → "rank 3", the process's own name, or "server", from `ps`."""
    for found in _PROCESS.finditer(listing):
        rank = _RANK.search(found["where"] or "")
        scheduler = f"rank {rank[1] if rank else 0}" if found["where"] is not None else None
        yield found[1], scheduler or found["other"] or "server"


def short(path: str) -> str:
    """The path below site-packages, or its last two parts."""
    return (
        path.rpartition("site-packages/")[2] if "site-packages/" in path else "/".join(path.split("/")[-2:])
    )
