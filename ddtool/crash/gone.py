"""Which rank the others lost, where the log shows only that they lost one.

A rank that is killed says nothing, and those that waited for it report a closed connection. It is named

- if SGLang names it: the first word that the service is over says which process had ended by then;
- else if the log shows all ranks of the service, and all of them but one report the loss. Whoever lost a peer went
  later than that peer, so the one without a report went first.

Nobody is named where a rank or a line may be out of view, or where the silent one need not be the first: ranks of
other nodes, ranks that share a number, lines that the journal lost, a log without the service's end, reports from
after the server began to kill its own processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ddtool.crash import events
from ddtool.crash.hits import Hit
from ddtool.crash.judge import BEFORE_END_LINES, Finding, was_survived
from ddtool.crash.model import Line
from ddtool.crash.ranks import rank_of
from ddtool.crash.scene import Scene
from ddtool.crash.signatures import Loss, Signature, compiled

_SIZE = re.compile(r"\b(tp_size|pp_size|dp_size|nnodes)=(\d{1,6})\b")
# The watchdog's and the launcher's words; both count the schedulers of their node.
_DIED = re.compile(
    r"Subprocess (?:scheduler_(?P<watched>\d{1,6})|\S+) \(pid=\d+\) crashed with exit code (?P<code>-?\d+)"
    r"|Rank (?P<started>\d{1,6}) scheduler died\b.{0,40}\(exit code: (?P<left>-?\d+)\)"
)


@dataclass(frozen=True)
class Gone:
    """The rank that went away, what its signature says now, and the last line of the rank, if it has one."""

    rank: int
    signature: Signature
    last: Line | None


@dataclass(frozen=True)
class _Service:
    """`ranks`: how many tensor-parallel ranks; `numbered`: whether SGLang's n-th scheduler is rank n."""

    ranks: int
    numbered: bool


def gone(finding: Finding) -> Gone | None:
    """The rank that the cause of `finding` reports lost; None when the log leaves any doubt which it is."""
    cause, scene = finding.cause, finding.scene
    loss = _loss(cause) if cause else None
    service = _service(scene)
    if cause is None or loss is None or service is None:
        return None
    reports = [hit for hit in finding.hits if hit.signature.loss and hit.number >= cause.number]
    died = _DIED.search(scene.attempt.end.text) if scene.attempt.end else None
    if died:
        rank, said = _named(died, reports, service, scene), loss.named
    else:
        rank, said = _silent(finding, reports, service), loss.silent
    if rank is None or not said:
        return None
    code = (died["code"] or died["left"]) if died else ""
    own = [line for line in scene.lines if line.rank == rank]
    return Gone(rank, _told(cause.signature, loss, said, rank, code), own[-1] if own else None)


def _loss(cause: Hit) -> Loss | None:
    return next((each for each in cause.signature.loss if compiled(each.match).search(cause.line.text)), None)


def _service(scene: Scene) -> _Service | None:
    """By the server's arguments; None where a log cannot show all ranks, or a rank's number is not its own.

    `nnodes` must be said: it stands behind the others, so a line that holds it was not cut before them.
    """
    said = next((line.text for line in scene.lines if events.phase_of(line) == "args"), "")
    sizes = {name: int(value) for name, value in _SIZE.findall(said)}
    replicas = sizes.get("dp_size", 1)
    shares_numbers = sizes.get("pp_size", 1) > 1 or (replicas > 1 and "enable_dp_attention=True" not in said)
    if "tp_size" not in sizes or sizes.get("nnodes") != 1 or shares_numbers:
        return None
    return _Service(sizes["tp_size"], numbered=replicas == 1)


def _named(died: re.Match[str], reports: list[Hit], service: _Service, scene: Scene) -> int | None:
    """A rank that reports a loss itself died of that loss; the launcher comes upon the ranks in their order."""
    number = died["watched"] or died["started"]
    if number is None or not service.numbered:
        return None
    rank = int(number)
    follows = any(rank_of(hit.line, scene) == rank for hit in reports)
    return rank if rank < service.ranks and not follows else None


def _silent(finding: Finding, reports: list[Hit], service: _Service) -> int | None:
    scene, cause = finding.scene, finding.cause
    assert cause
    end = scene.attempt.end
    announced = {rank for rank in scene.attempt.phases if rank is not None}
    reporting = {rank_of(hit.line, scene) for hit in reports}
    silent = announced - reporting
    if (
        announced != set(range(service.ranks))
        or None in reporting
        or len(silent) != 1
        or end is None  # the log may break off before the rank's own words
        or end.number < cause.number  # whoever lost a peer then may have lost one that the server killed
        or _is_torn(scene, cause)
    ):
        return None
    (rank,) = silent
    return None if _speaks(rank, finding, cause) else rank


def _is_torn(scene: Scene, cause: Hit) -> bool:
    """Whether lines are missing where the last words of a rank would be."""
    first = scene.index(cause.number) - BEFORE_END_LINES
    return any(scene.index(line.number) >= first for line in scene.gaps)


def _speaks(rank: int, finding: Finding, cause: Hit) -> bool:
    """Whether the rank complains of anything, or goes on behind the first report."""
    scene = finding.scene
    return any(line.rank == rank and line.number > cause.number for line in scene.lines) or any(
        hit.signature.role in ("root", "cascade")
        and rank_of(hit.line, scene) == rank
        and not was_survived(scene, hit)
        for hit in finding.hits
    )


def _told(signature: Signature, loss: Loss, said: str, rank: int, code: str) -> Signature:
    def of_rank(text: str) -> str:
        return text.replace("{rank}", str(rank)).replace("{code}", code)

    return replace(
        signature,
        cause=of_rank(said),
        missing=tuple(map(of_rank, loss.missing)),
        remedy=of_rank(loss.remedy),
        next=of_rank(loss.next),
    )
