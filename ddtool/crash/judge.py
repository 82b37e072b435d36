"""Attempts → the first cause, by the rules of the taxonomy, in the order in which this file states them.

1. An attempt counts alone, the earliest failing one of a restart loop first; an attempt that shows only exits gives
   way to a later one that shows a cause.
2. What the service survived is no cause: batches that succeeded later, phases that were reached later, anything
   after it was told to stop.
3. Messengers (another rank is gone, the process group's watchdog) and exits count only when nothing else is there.
4. Otherwise time decides. Within the same second the nearer to the cause is it (signatures.TIERS), since parents
   print the consequence before a child prints the cause. A GPU that died explains any hang.
5. Within one traceback chain the most telling exception is it, of equals the earliest, since wrappers come later.
6. A signature that knows only that something failed gives way to one that knows what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddtool.crash.hits import Hit, hits
from ddtool.crash.model import Attempt, Line
from ddtool.crash.scene import Scene
from ddtool.crash.signatures import TIERS, Catalogue

SAME_MOMENT_S = 1.0
SAME_MOMENT_LINES = 120  # where no line has a time
SURVIVED_BATCHES = (
    3  # so many later ones show, without a clock, that it went on: other ranks may still print one
)
BEFORE_END_S = 300.0  # how far back from a bad end something may lie that batches have outlived
BEFORE_END_LINES = 400

_LAST_RESORTS = ("messenger", "exit")
_TOLD_TO_STOP = re.compile(
    r"Stopping |Gracefully exiting|(?:INFO: +)?Shutting down$"
    r"|.{0,80}(?:[Rr]eceived|[Gg]ot) (?:signal )?SIG(?:TERM|INT)\b|SIG(?:TERM|INT) received"
)
_BAD_END = re.compile(
    r".*: (?:Main|Control) process exited, code=(?:exited, status=(?!0/|143|130)|dumped)"
    r"|.*: (?:Main|Control) process exited, code=killed, status=(?!15/TERM|2/INT)"
    r"|.*: Failed with result |.*: Start request repeated|.*: [Ss]tart operation timed out|Failed to start "
    r"|.*(?:SIGQUIT received|[Rr]eceived sigquit|crashed with exit code|died during initialization)"
    r"|.*(?:Child process unexpectedly failed|EngineCore failed to start|Engine core initialization failed)"
    r"|.*(?:EngineDeadError|RayActorError|Dumping requests before crash|Initialization failed)|Killed$|Aborted"
)
_FATAL = re.compile(
    r"hit an exception|fatal error|Exception in (?:thread|run_)|Traceback \(most recent call last\):.*\bscheduler\b"
    r"|Process \S+:$|uncaught",
    re.I,
)


@dataclass(frozen=True)
class Finding:
    """What the rules found in one attempt. `cause` None: it ended badly, or looks so, and nothing says why."""

    scene: Scene
    hits: Sequence[Hit]
    cause: Hit | None
    ended_badly: bool
    stopped_on_purpose: bool
    is_hearsay: bool = False  # the cause is a logger's line that is no error by itself

    @property
    def failed(self) -> bool:
        return self.cause is not None or self.ended_badly

    @property
    def is_last_resort(self) -> bool:
        return self.cause is None or self.cause.signature.tier in _LAST_RESORTS


def judge(attempts: Iterable[Attempt], catalogue: Catalogue) -> Finding | None:
    """The finding that counts (rule 1); None for no attempts at all. A healthy log's has `failed` False."""
    found: list[Finding] = []
    for attempt in attempts:
        found.append(finding(attempt, catalogue))
        if found[-1].failed and not found[-1].is_last_resort:
            return found[-1]
    failed = [each for each in found if each.failed]
    telling = [each for each in failed if each.cause] or failed or found[-1:]
    return telling[0] if telling else None


def finding(attempt: Attempt, catalogue: Catalogue) -> Finding:
    scene = Scene(attempt)
    found = hits(scene, catalogue)
    stop = next((line.number for line in attempt.lines if _TOLD_TO_STOP.match(line.text)), None)
    ended_badly = any(
        _BAD_END.match(line.text) for line in attempt.lines if stop is None or line.number < stop
    )
    roots = [hit for hit in found if hit.signature.role == "root" and (stop is None or hit.number < stop)]
    said = [hit for hit in roots if not _is_talk(scene, hit)]
    cause = first_cause(scene, said, ended_badly)
    if ended_badly and (cause is None or cause.signature.tier in _LAST_RESORTS):
        cause = first_cause(scene, roots, ended_badly)  # better a logger's word than none
    hearsay = cause is not None and _is_talk(scene, cause)
    return Finding(scene, found, cause, ended_badly, stop is not None, hearsay)


def _is_talk(scene: Scene, hit: Hit) -> bool:
    return hit.signature.tier in ("exception", "native") and scene.is_plain_talk(hit.line)


def first_cause(scene: Scene, roots: Sequence[Hit], ended_badly: bool) -> Hit | None:
    alive = _not_survived(scene, roots, ended_badly)
    strong = [hit for hit in alive if hit.signature.tier not in _LAST_RESORTS]
    weak = [hit for hit in alive if hit.signature.tier == "messenger"] or alive
    candidates = _without_fallbacks(scene, strong or weak, ended_badly)
    return _earliest(scene, candidates) if candidates else None


def _not_survived(scene: Scene, roots: Sequence[Hit], ended_badly: bool) -> list[Hit]:
    """Rule 2."""
    fresh = [hit for hit in roots if not was_survived(scene, hit)]
    if fresh or not ended_badly:
        return fresh
    end = scene.attempt.end or scene.lines[-1]
    return [
        hit
        for hit in roots
        if _gap(scene, hit.number, end.number, BEFORE_END_LINES) <= BEFORE_END_S
        and not _reached_more(scene, hit)
    ]


def was_survived(scene: Scene, hit: Hit) -> bool:
    """Whether the service went on behind it: batches that succeeded, or, of an exception, a later phase."""
    good = scene.attempt.last_good
    if good is not None and good > hit.number:
        if not scene.has_clock and sum(number > hit.number for number in scene.batches) >= SURVIVED_BATCHES:
            return True
        return _gap(scene, hit.number, good, SAME_MOMENT_LINES) > SAME_MOMENT_S
    return _reached_more(scene, hit)


def _reached_more(scene: Scene, hit: Hit) -> bool:
    """Whether the start went on after an exception that nobody called fatal, such as a missing optional package."""
    if hit.signature.tier not in ("exception", "native") or is_fatal(scene, hit.line):
        return False
    reached = scene.attempt.phases
    steps = (
        reached.get(hit.line.rank, ())
        if hit.line.rank is not None
        else [s for each in reached.values() for s in each]
    )
    return any(
        number > hit.number
        and phase not in ("ended", scene.phase(hit.line))
        and _gap(scene, hit.number, number, 2) > SAME_MOMENT_S
        for number, phase in steps
    )


def is_fatal(scene: Scene, line: Line) -> bool:
    """Whether the words before the traceback say that it ends a process."""
    block = scene.chain(line)
    first = scene.index(block.lines[0].number if block and block.lines else line.number)
    near = scene.lines[max(0, first - 2) : first + 1]
    return any(_FATAL.search(each.text) for each in near) or _FATAL.search(line.text) is not None


def _without_fallbacks(scene: Scene, candidates: Sequence[Hit], ended_badly: bool) -> list[Hit]:
    """Rule 6. A request's exception in a service that goes on is nobody's crash."""
    telling = [hit for hit in candidates if not hit.signature.is_fallback]
    if telling:
        marked = [hit for hit in candidates if hit.signature.is_fallback and is_fatal(scene, hit.line)]
        first = min(telling, key=lambda hit: hit.number)
        earlier = [hit for hit in marked if hit.number < first.number and not _same_moment(scene, hit, first)]
        return [*earlier, *telling]
    serving = [hit for hit in candidates if scene.phase(hit.line) == "serving"]
    if not ended_badly and serving:
        return [hit for hit in candidates if is_fatal(scene, hit.line)]
    return list(candidates)


def _earliest(scene: Scene, candidates: Sequence[Hit]) -> Hit:
    """Rules 4 and 5."""
    dead_gpu = [hit for hit in candidates if hit.signature.tier == "kernel"]
    first = min(candidates, key=lambda hit: hit.number)
    if first.signature.tier == "hang" and dead_gpu:
        candidates, first = dead_gpu, min(dead_gpu, key=lambda hit: hit.number)
    together = [hit for hit in candidates if hit is first or _same_moment(scene, first, hit)]
    tier = min((hit.signature.tier for hit in together), key=TIERS.index)
    nearest = [hit for hit in together if hit.signature.tier == tier]
    leader = min(nearest, key=lambda hit: hit.number)
    chain = scene.chain(leader.line)
    chained = [hit for hit in nearest if hit is leader or (chain and scene.chain(hit.line) is chain)]
    return max(chained, key=lambda hit: (hit.signature.weight, -hit.number))


def _same_moment(scene: Scene, one: Hit, other: Hit) -> bool:
    chain = scene.chain(one.line)
    if chain is not None and scene.chain(other.line) is chain:
        return True
    return _gap(scene, one.number, other.number, SAME_MOMENT_LINES) <= SAME_MOMENT_S


def _gap(scene: Scene, earlier: int, later: int, lines: int) -> float:
    """Seconds between two lines. Without times: 0 within `lines` lines, else infinite."""
    before, after = scene.second(earlier), scene.second(later)
    if before is None or after is None:
        return 0.0 if abs(scene.index(later) - scene.index(earlier)) <= lines else float("inf")
    return abs(after - before)
