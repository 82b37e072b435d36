"""A finding → the verdict that people and programs read: sentences, evidence, ranks, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ddtool.agent.journal_text import marker
from ddtool.crash import numbers, unknown
from ddtool.crash.fingerprint import fingerprint, plain
from ddtool.crash.gone import Gone, gone
from ddtool.crash.hits import Hit
from ddtool.crash.judge import Finding
from ddtool.crash.model import FirstCause, Line, Verdict, Worker
from ddtool.crash.ranks import rank_of, table
from ddtool.crash.scene import Scene, frame_text
from ddtool.crash.signatures import Catalogue, Finer
from ddtool.crash.wording import gist, one_sentence

if TYPE_CHECKING:
    from ddtool.crash.classify import Context

CASCADE_MOST = 12
EVIDENCE_MOST = 12
TEXT_MOST = 600  # characters of a quoted line

_DRAFT = re.compile(
    r"draft_(?:worker|runner|model)|_draft|dflash_draft|draft_extend|draft_forward|eagle_draft|proposer|drafter",
    re.I,
)
_TARGET = re.compile(r"target_worker|target_verify|verify\b", re.I)
_PLACE = re.compile(r"\{(\w+)\}")
_NUMBER = re.compile(r"(?<![\w.])\d{1,7}(?![\w.])")
_PID = re.compile(r"\d{4,}")


def healthy(finding: Finding | None) -> Verdict:
    stopped = finding is not None and finding.stopped_on_purpose
    served = finding is not None and finding.scene.attempt.served
    is_cut = finding is not None and any(not each.kind for each in finding.scene.attempt.tracebacks)
    cause = "The service was stopped on purpose" if stopped else "Nothing in this log ended the service"
    return Verdict(
        category="no_crash",
        subcode="stopped" if stopped else "healthy",
        cause=f"{cause}; it holds a traceback without its last line." if is_cut else f"{cause}.",
        first_cause=None,
        cascade=(),
        evidence=(),
        missing=("what follows the traceback: the exception itself",) if is_cut else (),
        remedy="",
        next_command="ddtool status",
        confidence="low" if is_cut else "high" if served or stopped else "medium",
        fingerprint=None,
    )


def of_finding(finding: Finding, context: Context, catalogue: Catalogue) -> Verdict:
    watched_hang = context.hang_phase and finding.is_last_resort
    if finding.cause is None or watched_hang:
        return _undecided(finding, context, catalogue)
    hit, scene = finding.cause, finding.scene
    went = gone(finding)
    signature = went.signature if went else hit.signature
    assert signature.category
    category = catalogue.categories[signature.category]
    subcode = subcode_of(hit, scene)
    said = [_sentence(signature.cause, hit), *_numbers(hit, scene, context), *_diagnosed(finding, context)]
    return Verdict(
        category=category.name,
        subcode=subcode,
        cause=one_sentence(said),
        first_cause=_quote(hit.line, scene, hit),
        cascade=tuple(_cascade(finding)),
        evidence=tuple(_evidence(finding, went)),
        missing=tuple(dict.fromkeys([*signature.missing, *_not_in_view(finding)])),
        remedy=" ".join([signature.remedy or category.remedy, *_drift(context)]),
        next_command=signature.next or category.next,
        confidence="medium"
        if finding.is_hearsay and signature.confidence == "high"
        else signature.confidence,
        fingerprint=fingerprint(category.name, subcode, hit.line.text, scene.frames(hit.line)),
        ranks=tuple(table(finding, went.rank if went else None)),
    )


def _undecided(finding: Finding, context: Context, catalogue: Catalogue) -> Verdict:
    """Unknown, or a hang that somebody watched."""
    scene = finding.scene
    lines = unknown.suspicious(finding)
    hung = context.hang_phase
    category = catalogue.categories["sched_hang" if hung else "unknown"]
    first = _quote(lines[0], scene) if lines and not hung else None
    where = [f"rank {rank}: {frame}" for rank, frame in unknown.frames(finding)]
    cause = (
        f"The service made no progress in phase {hung} until its deadline, and nothing in the log says why."
        if hung
        else "The service ended, and nothing in view decides why."
    )
    return Verdict(
        category=category.name,
        subcode=f"hang-{hung}" if hung else None,
        cause=one_sentence([cause, *([f"innermost frames: {'; '.join(where)}"] if where else [])]),
        first_cause=first,
        cascade=tuple(_cascade(finding)),
        evidence=tuple(_quote(line, scene) for line in lines),
        missing=tuple(dict.fromkeys([*unknown.to_collect(finding), *_not_in_view(finding)])),
        remedy=category.remedy,
        next_command=category.next,
        confidence="medium" if hung else "low",
        fingerprint=fingerprint(category.name, hung, first.text if first else "", ()),
        ranks=tuple(table(finding)),
    )


def subcode_of(hit: Hit, scene: Scene) -> str | None:
    finer = next((each for each in hit.signature.subcodes if _is_finer(each, hit.line, scene)), None)
    named = finer.subcode if finer else hit.signature.subcode
    return _PLACE.sub(lambda place: hit.groups.get(place[1], ""), named) if named else None


def _is_finer(finer: Finer, line: Line, scene: Scene) -> bool:
    return scene.matches(finer.scope, finer.match, line) and (
        finer.also is None or scene.matches(finer.scope, finer.also, line)
    )


def _sentence(template: str, hit: Hit) -> str:
    """The signature's sentence. What follows its colon is left out if a group that it names is not there."""
    known = {"line": gist(hit.line.text), **hit.groups}
    if any(name not in known or not known[name] for name in _PLACE.findall(template)):
        template = template.partition(":")[0] + "."
    return _PLACE.sub(lambda place: known.get(place[1], "?"), template)


def _numbers(hit: Hit, scene: Scene, context: Context) -> Iterator[str]:
    if {"a", "b"} <= hit.groups.keys():
        known = context.numbers.over(scene.known)
        said = known.explained(int(hit.groups[name]) for name in ("a", "b"))
        if said:
            yield said


def _diagnosed(finding: Finding, context: Context) -> Iterator[str]:
    """What diagnostics of ours saw, and what their silence means."""
    events = filter(None, (marker(line.text) for line in finding.scene.lines))
    event = next((event for event in events if event.get("event") in ("none", "shape")), None)
    if event:
        yield _of_graph_copy(event)
    if context.outcome:
        yield f"outcome of the diagnostic run: {context.outcome}"
    elif context.diagnostics and not event:
        yield f"enabled and silent: {', '.join(context.diagnostics)}"


def _of_graph_copy(event: Mapping[str, Any]) -> str:
    index = event.get("index")
    name = event.get("field") or (numbers.graph_field(index) if isinstance(index, int) else "a field")
    fault = (
        "is None"
        if event["event"] == "none"
        else f"has shape {event.get('src_shape')} for {event.get('dst_shape')}"
    )
    who = f"{event.get('worker') or 'unknown'} worker, rank {event.get('rank')}"
    return f"diagnostic {event.get('patch')}: entry {index} of the copy, {name}, {fault} ({who})"


def _drift(context: Context) -> Iterator[str]:
    if context.drift:
        yield f"Look at the drift too, it may be the cause: {'; '.join(context.drift)}."


def _cascade(finding: Finding) -> Iterator[FirstCause]:
    """What followed, each kind once, without what the cause says of itself."""
    cause = finding.cause
    seen = {plain(cause.line.text)} if cause else set()
    given = 0
    for hit in finding.hits:
        what = plain(hit.line.text)
        follows = cause is None or (hit.number > cause.number and hit.signature is not cause.signature)
        if (
            follows
            and hit.signature.role in ("cascade", "root")
            and what not in seen
            and given < CASCADE_MOST
        ):
            seen.add(what)
            given += 1
            yield _quote(hit.line, finding.scene)


def _evidence(finding: Finding, went: Gone | None) -> Iterator[FirstCause]:
    """The last words of the rank that went away, the same words from other ranks, and lines that confirm."""
    cause = finding.cause
    assert cause
    ranks = {cause.line.rank}
    given = 0
    if went and went.last:
        given += 1
        yield _quote(went.last, finding.scene)
    for hit in finding.hits:
        again = hit.signature is cause.signature and hit.line is not cause.line and hit.line.rank not in ranks
        if (again or hit.signature.role == "confirmation") and given < EVIDENCE_MOST:
            ranks.add(hit.line.rank if again else -1)
            given += 1
            yield _quote(hit.line, finding.scene)


def _not_in_view(finding: Finding) -> Iterator[str]:
    for line in finding.scene.gaps:
        yield f"lines that the journal lost ({_shortened(line.text)})"


def _quote(line: Line, scene: Scene, hit: Hit | None = None) -> FirstCause:
    return FirstCause(line.number, _shortened(line.text), rank_of(line, scene), worker_of(line, scene))


def worker_of(line: Line, scene: Scene) -> Worker | None:
    """Draft or target, by the innermost frame that tells, or by a diagnostic's marker."""
    event = marker(line.text)
    if event and event.get("worker") in ("draft", "target"):
        return "draft" if event["worker"] == "draft" else "target"
    for frame in reversed(scene.frames(line)):
        text = frame_text(frame)
        if _TARGET.search(text):
            return "target"
        if _DRAFT.search(text):
            return "draft"
    return None


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_MOST else text[: TEXT_MOST - 1] + "…"
