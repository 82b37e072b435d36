"""A tuning run's files, and what they say. No host, no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtool.bench import results, run, taint
from ddtool.bench.compare import arrow, differences
from ddtool.bench.passes import Design, alternating
from ddtool.bench.records import Pass
from ddtool.bench.store import Folder, checked, read_json
from ddtool.bench.tune import plan, trace
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.cost import Experts
from ddtool.bench.tune.found import Found
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import timings
from ddtool.bench.tune.trace import Text
from ddtool.errors import DdtoolError, UsageError

Json = dict[str, Any]
TRACE_FILE = "trace.jsonl"
EXPERTS_FILE = "experts.json"
MAY_CHANGE = ("commit", "date")  # of a fingerprint: what measures is the agent, which has a hash of its own


def found(fit: Folder, verified: Folder | None) -> Found:
    """What a run's files say. Raises UsageError where the run has no trace, DdtoolError where it is not enough."""
    about = fit.run
    how = about["how"].get("tune")
    path = fit.path / TRACE_FILE
    if how is None or not path.exists():
        packed = path.with_name(f"{TRACE_FILE}.xz")
        raise UsageError(
            f"{fit.path.name} has no trace of what the drafter said, so it tells nothing of other budgets",
            why="only runs of `ddtool tune` have one",
            hint=f"xz -dk {packed}" if how and packed.exists() else "ddtool tune",
        )
    topk, planned = int(how["topk"]), passes_in(fit)
    measured = timings(passes_of(fit), topk)
    again = timings(passes_of(verified), topk) if verified else []
    widest = max((one.shape.budget for one in measured if one.shape is not None), default=1)
    texts, lost = traced_texts(fit, path)
    try:
        acceptance = Acceptance(texts, widest)
    except ValueError as error:
        raise DdtoolError(f"{path}: {error}", hint="ddtool tune traces again") from error
    experts = experts_in(fit, how)
    return Found(
        predictor=Predictor(measured, acceptance, experts),
        timings=measured,
        verified=again,
        traced=str(how["traced"]),
        topk=topk,
        experts=experts,
        lost=[
            *lost_passes("fit", len(measured), planned),
            *lost,
            *(lost_passes("verification", len(again), passes_in(verified)) if verified else []),
        ],
    )


def passes_in(folder: Folder) -> int:
    """As planned, but for the traced one. Raises UsageError where the run's plan is none."""
    return len(alternating(Design.from_json(folder.run["plan"])))


def lost_passes(what: str, whole: int, planned: int) -> list[str]:
    """whole: passes that have all their requests, each of them answered."""
    return [f"the {what} has {whole} of {planned} passes whole"] if whole < planned else []


def second_of(fit: Folder) -> tuple[Folder | None, list[str]]:
    """The newest run beside it that verified what this one recommended, or began to; and why newer ones are not read.

    Whose a run is that cannot be read at all, nobody knows: it is told as well.
    """
    unread = []
    for path in sorted(fit.path.parent.glob("*/run.json"), reverse=True):
        one, name = Folder(path.parent), path.parent.name
        try:
            how = one.run.get("how")
        except DdtoolError as error:
            if name > fit.path.name:  # ids sort by time, and a verification comes later
                unread.append(f"{name} cannot be read, and may be the verification: {error.message}")
            continue
        if not isinstance(how, dict) or how.get("verifies") != fit.path.name:
            continue
        try:
            passes_in(checked(one))
        except DdtoolError as error:
            unread.append(f"the verification {name} cannot be read: {error.message}")
            continue
        return one, unread
    return None, unread


def about(fit: Folder, verified: Folder | None) -> Json:
    """run.json of the fit, with what spoils the numbers of either run: as it was seen before, and while they ran.

    What `bench` warns of is said of the passes that decide: the verification's, or without one the fit's.
    """
    taints: dict[str, None] = {}
    warnings: dict[str, None] = {}
    doubts: list[str] = []
    for one in [fit, *([verified] if verified else [])]:
        lines = measured_lines(one)
        taints |= dict.fromkeys([*one.run.get("taints", ()), *taint.of_samples(lines)])
        warnings |= dict.fromkeys([*one.run.get("warnings", ()), *run.server_differences(lines)])
        if whole := results.read_of(one.run, lines).passes:
            doubts = results.doubts(one.run, whole)
    warnings |= dict.fromkeys([*second_of(fit)[1], *doubts])
    if verified and (changed := changed_between(fit, verified)):
        told = f"the verification was measured under other conditions than the fit: {'; '.join(changed)}"
        taints[told] = None
    return {**fit.run, "taints": list(taints), "warnings": list(warnings)}


def changed_between(fit: Folder, verified: Folder) -> list[str]:
    """`driver: 560.35 → 570.12` for each leaf that both fingerprints have; arms that only one ran are no change."""
    return [
        arrow(one)
        for one in differences(fit.run["fingerprint"], verified.run["fingerprint"])
        if one["a"] is not None and one["b"] is not None and one["what"] not in MAY_CHANGE
    ]


def measured_lines(folder: Folder) -> list[Json]:
    """Of a run's samples; the traced pass is no measurement of an arm."""
    return [line for line in folder.lines() if not str(line.get("pass")).startswith(f"{plan.TRACE}/")]


def traced_texts(fit: Folder, path: Path) -> tuple[list[Text], list[str]]:
    """Of the traced pass alone, which was the last to be asked of its server; and what is lost of it.

    A single token needs no round.
    """
    samples = [
        sample
        for one in results.read_of(fit.run, fit.lines()).passes
        if one.id.arm == plan.TRACE
        for sample in one.samples
        if (sample["completion_tokens"] or 0) > 1
    ]
    with path.open(encoding="utf-8") as lines:
        texts = trace.read(lines)
    if not samples:
        return texts, ["the fit has no traced pass whole: of the trace every text is taken, a warm-up's too"]
    texts = texts[-len(samples) :]
    sizes = Counter((sample["prompt_tokens"], sample["completion_tokens"]) for sample in samples)
    whole = (sizes & Counter((text.prompt_tokens, len(text.ids)) for text in texts)).total()
    lost = f"the trace has {whole} texts whole, and the traced pass {len(samples)}"
    if len(texts) == len(samples):
        texts = [_named(text, sample) for text, sample in zip(texts, samples, strict=True)]
    return texts, [lost] if whole < len(samples) else []


def _named(text: Text, sample: Mapping[str, Any]) -> Text:
    """With the digests of the request in its place; requests that are sent at once may change places on their way."""
    alike = (text.prompt_tokens, len(text.ids)) == (sample["prompt_tokens"], sample["completion_tokens"])
    if sample.get("output") is None or not alike:
        return text
    return replace(text, said=(sample["prompt"], sample["output"]))


def passes_of(folder: Folder) -> list[Pass]:
    """A run's whole passes, but the traced one."""
    return results.read_of(folder.run, measured_lines(folder)).passes


def experts_in(fit: Folder, how: Mapping[str, Any]) -> Experts | None:
    """Of the target, with what SGLang's recorder counted where the run has that."""
    if not how.get("experts"):
        return None
    count, chosen = how["experts"]
    path = fit.path / EXPERTS_FILE
    if not path.exists():
        return Experts(count, chosen, None)
    try:
        counted = {int(width): float(seen) for width, seen in read_json(path).items()}
    except (DdtoolError, ValueError, TypeError) as error:
        raise DdtoolError(
            f"{path} does not say how many experts each width reads: {error}",
            hint=f"mv {path} {path}.broken, and the bound of independent routing is taken in its place",
        ) from error
    return Experts(count, chosen, counted or None)
