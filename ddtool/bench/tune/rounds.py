"""What a round took, from the samples of passes: one timing a pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from ddtool.bench.records import Pass
from ddtool.bench.tune.trees import CHAIN, Shape

CONCURRENCY = re.compile(r"-c(\d+)(?=-|$)")
TREE = re.compile(r"tree:(\d+)(?::(\d+))?")
ALIKE = (
    0.05  # share by which chunks and rounds of a request may differ in number, to count as one and the same
)
STEP_SECONDS = re.compile(r"ddtree_seconds_(sum|count)\{?.*step=\"(\w+)\"")


@dataclass(frozen=True)
class Timing:
    """One pass. shape: None for plain decoding. context: prompt tokens, the median. workload: its cell without the
    concurrency. visit: the server start, repeat: within it. round_ms: between two rounds.

    seconds: from the first request sent to the last one done. rounds, tokens: of each request, in order. said: digests
    of its prompt and of its answer, None in samples that have none. steps: ms a round on the device by step of the tree
    (grow, choose, follow), where the server has metrics.
    """

    arm: str
    shape: Shape | None
    concurrency: int
    context: int
    workload: str
    visit: int
    repeat: int
    round_ms: float
    seconds: float
    rounds: tuple[float, ...]
    tokens: tuple[int, ...]
    said: tuple[tuple[str, str | None], ...]
    steps: Mapping[str, float]

    @property
    def tok_s(self) -> float:
        return sum(self.tokens) / self.seconds

    @property
    def accept(self) -> float:
        return sum(self.tokens) / sum(self.rounds)


def shape_of(arm: str, topk: int) -> Shape | None:
    """The shape of an arm's name; `topk` where the name has none. None for plain decoding."""
    match = TREE.fullmatch(arm)
    if match:
        return Shape(int(match[1]), int(match[2] or topk))
    return CHAIN if arm == "chain" else None


def arm_of(shape: Shape, topk: int) -> str:
    """The arm's name; top-k is left out where it is the default."""
    if shape.is_chain:
        return "chain"
    return f"tree:{shape.budget}" + ("" if shape.topk == topk else f":{shape.topk}")


def width_of(shape: Shape, block: int) -> int:
    """Tokens a request has in a verify."""
    return block if shape.is_chain else shape.budget + 1


def timings(passes: Iterable[Pass], topk: int) -> list[Timing]:
    """Of closed-loop passes whose requests were all answered. topk: of arms whose name has none."""
    return [found for one in passes if (found := timing(one, topk)) is not None]


def timing(one: Pass, topk: int) -> Timing | None:
    """None for a pass at a request rate, or with a request that failed or took no round."""
    concurrency = CONCURRENCY.search(one.id.cell)
    shape = shape_of(one.id.arm, topk)
    if concurrency is None or not all(_whole(sample, shape) for sample in one.samples):
        return None
    return Timing(
        arm=one.id.arm,
        shape=shape,
        concurrency=int(concurrency[1]),
        context=round(median(sample["prompt_tokens"] for sample in one.samples)),
        workload=CONCURRENCY.sub("", one.id.cell, count=1),
        visit=one.id.visit,
        repeat=one.id.repeat,
        round_ms=1000 * _round_seconds(one.samples, int(concurrency[1]), shape),
        seconds=float(one.end["seconds"]),
        rounds=tuple(_rounds(sample, shape) for sample in one.samples),
        tokens=tuple(sample["completion_tokens"] for sample in one.samples),
        said=tuple((sample["prompt"], sample.get("output")) for sample in one.samples),
        steps=_steps(one.end.get("metrics") or {}),
    )


def _whole(sample: Mapping[str, Any], shape: Shape | None) -> bool:
    answered = sample.get("error") is None and sample["status"] == 200 and len(sample["chunks"]) > 1
    return bool(answered and (shape is None or sample.get("verify_ct")))


def _rounds(sample: Mapping[str, Any], shape: Shape | None) -> float:
    """Forwards after prefill, which says the first token by itself."""
    return float(sample["verify_ct"] if shape is not None else sample["completion_tokens"] - 1)


def _round_seconds(samples: Sequence[Mapping[str, Any]], concurrency: int, shape: Shape | None) -> float:
    """With one request at a time, decode time over rounds; with several, the median time between chunks.

    So others' prefills in between do not count. Chunks that a slow reader has run together are no rounds.
    """
    by_round = all(_is_by_round(sample, _rounds(sample, shape)) for sample in samples)
    if concurrency > 1 and by_round:
        gaps = [b[0] - a[0] for sample in samples for a, b in pairwise(sample["chunks"])]
        return float(median(gaps))
    whole = [(one["chunks"][-1][0] - one["chunks"][0][0]) / _rounds(one, shape) for one in samples]
    return float(median(whole))


def _is_by_round(sample: Mapping[str, Any], rounds: float) -> bool:
    return abs(len(sample["chunks"]) - 1 - rounds) <= ALIKE * rounds


def _steps(metrics: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds a round, from the differences of `sglang:ddtree_seconds` over the pass."""
    totals: dict[tuple[str, str], float] = {}
    for name, value in metrics.items():
        match = STEP_SECONDS.search(name)
        if match:
            totals[match[2], match[1]] = totals.get((match[2], match[1]), 0.0) + value
    return {
        step: 1000 * totals[step, "sum"] / count
        for (step, what), count in totals.items()
        if what == "count" and count and (step, "sum") in totals
    }
