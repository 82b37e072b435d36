"""A tuning run's files, and what they say. No host, no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtool.bench import records, run, taint
from ddtool.bench.compare import differences
from ddtool.bench.store import Folder
from ddtool.bench.tune import plan, trace
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.cost import Experts
from ddtool.bench.tune.found import Found
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import Timing, timings
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
        raise UsageError(
            f"{fit.path.name} has no trace of what the drafter said, so it tells nothing of other budgets",
            why="only runs of `ddtool tune` have one",
            hint="ddtool tune",
        )
    topk = int(how["topk"])
    measured = of_run(fit, topk)
    widest = max((one.shape.budget for one in measured if one.shape is not None), default=1)
    try:
        acceptance = Acceptance(traced_texts(fit, path), widest)
    except ValueError as error:
        raise DdtoolError(f"{path}: {error}", hint="ddtool tune traces again") from error
    experts = experts_in(fit, how)
    return Found(
        predictor=Predictor(measured, acceptance, experts),
        timings=measured,
        verified=of_run(verified, topk) if verified else [],
        traced=str(how["traced"]),
        topk=topk,
        experts=experts,
    )


def about(fit: Folder, verified: Folder | None) -> Json:
    """run.json of the fit, with what spoils the numbers of either run: as it was seen before, and while they ran."""
    taints: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for one in [fit, *([verified] if verified else [])]:
        lines = measured_lines(one)
        taints |= dict.fromkeys([*one.run.get("taints", ()), *taint.of_samples(lines)])
        warnings |= dict.fromkeys([*one.run.get("warnings", ()), *run.server_differences(lines)])
    if verified and (changed := changed_between(fit, verified)):
        taints[f"the verification was measured under other conditions than the fit: {'; '.join(changed)}"] = (
            None
        )
    return {**fit.run, "taints": list(taints), "warnings": list(warnings)}


def changed_between(fit: Folder, verified: Folder) -> list[str]:
    """`driver: 560.35 → 570.12` for each leaf that both fingerprints have; arms that only one ran are no change."""
    return [
        f"{one['what']}: {one['a']} → {one['b']}"
        for one in differences(fit.run["fingerprint"], verified.run["fingerprint"])
        if one["a"] is not None and one["b"] is not None and one["what"] not in MAY_CHANGE
    ]


def measured_lines(folder: Folder) -> list[Json]:
    """Of a run's samples; the traced pass is no measurement of an arm."""
    return [line for line in folder.lines() if not str(line.get("pass")).startswith(f"{plan.TRACE}/")]


def traced_texts(fit: Folder, path: Path) -> list[Text]:
    """Of the traced pass alone: it was the last to be asked of its server. A single token needs no round."""
    samples = [
        sample
        for one in records.read(fit.lines()).passes
        if one.id.arm == plan.TRACE
        for sample in one.samples
        if sample["completion_tokens"] > 1
    ]
    with path.open(encoding="utf-8") as lines:
        texts = trace.read(lines)[-len(samples) :]
    if len(texts) != len(samples):
        return texts
    return [_named(text, sample) for text, sample in zip(texts, samples, strict=True)]


def _named(text: Text, sample: Mapping[str, Any]) -> Text:
    """With the digests of the request in its place; requests that are sent at once may change places on their way."""
    if sample.get("output") is None or text.prompt_tokens != sample["prompt_tokens"]:
        return text
    return replace(text, said=(sample["prompt"], sample["output"]))


def of_run(folder: Folder, topk: int) -> list[Timing]:
    """Timings of a run's passes, but the traced one."""
    return timings(records.read(measured_lines(folder)).passes, topk)


def experts_in(fit: Folder, how: Mapping[str, Any]) -> Experts | None:
    """Of the target, with what SGLang's recorder counted where the run has that."""
    if not how.get("experts"):
        return None
    count, chosen = how["experts"]
    path = fit.path / EXPERTS_FILE
    counted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Experts(count, chosen, {int(width): float(seen) for width, seen in counted.items()} or None)
