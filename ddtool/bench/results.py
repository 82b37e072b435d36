"""`result.json` from a run's samples (ddtool.bench/1). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ddtool.bench import metrics, records, statistics
from ddtool.bench.metrics import Measured
from ddtool.bench.records import Pass, Records

Json = dict[str, Any]
SCHEMA = "ddtool.bench/1"
BASES = ("chain", "plain")  # what a cell's arms are compared with: the first of these that it has


@dataclass(frozen=True)
class ArmPasses:
    """An arm in a cell: its passes in the order they ran, and what each of them measured."""

    arm: str
    passes: tuple[Pass, ...]
    measured: tuple[Measured, ...]

    @property
    def tok_s(self) -> list[float]:
        return [one.tok_s for one in self.measured]

    @property
    def by_repeat(self) -> dict[tuple[int, int], float]:
        """tok/s by (visit, repeat), of passes that had any."""
        return {
            (one.id.visit, one.id.repeat): numbers.tok_s
            for one, numbers in zip(self.passes, self.measured, strict=True)
            if numbers.tok_s > 0
        }


def summarise(
    run: Mapping[str, Any], samples: Iterable[object], slo: Mapping[str, float] | None = None
) -> Json:
    """A run as ddtool.bench/1; `lossless` and `objective` are None here.

    samples: lines of samples.jsonl, as text or parsed. slo: bounds in ms (`ttft`, `tpot`, `e2e`) for goodput.

    Raises UsageError for a bound that is none, DdtoolError when a request was recorded twice.
    """
    slo = metrics.checked_slo(slo or {})
    read = read_of(run, samples)
    warnings = [*run.get("warnings", ()), *read.warnings]
    cells = []
    for cell, arms in arms_by_cell(run, read.passes):
        ratios, words = compared(cell["key"], arms)
        warnings += words
        entries = {one.arm: numbers(one, slo) for one in arms if one.passes}
        cells.append({"cell": dict(cell), "arms": entries, "ratios": ratios})
    warnings += too_few(cells)
    return {
        "schema": SCHEMA,
        "run": run["run"],
        "profile": run["profile"],
        "host": run["host"],
        "fingerprint": run.get("fingerprint") or {},
        "taints": [*run.get("taints", ())],
        "warnings": warnings,
        "slo": dict(slo) or None,
        "cells": cells,
        "lossless": None,
        "objective": None,
    }


def read_of(run: Mapping[str, Any], samples: Iterable[object]) -> Records:
    """Its passes that have every request of their cell. Raises DdtoolError when a request was recorded twice."""
    return records.read(samples, {cell["key"]: cell["prompts"] for cell in run["plan"]["cells"]})


def doubts(run: Mapping[str, Any], passes: Sequence[Pass]) -> list[str]:
    """What makes rates and ratios of these passes less than they look."""
    return [word for cell, arms in arms_by_cell(run, passes) for word in compared(cell["key"], arms)[1]]


def arms_by_cell(
    run: Mapping[str, Any], passes: Sequence[Pass]
) -> Iterator[tuple[Mapping[str, Any], list[ArmPasses]]]:
    """Each cell of the plan, and each arm's passes over it, which may be none."""
    for cell in run["plan"]["cells"]:
        yield cell, [arm_passes(arm, cell["key"], passes) for arm in run["plan"]["arms"]]


def arm_passes(arm: str, cell: str, passes: Sequence[Pass]) -> ArmPasses:
    mine = tuple(one for one in passes if (one.id.arm, one.id.cell) == (arm, cell))
    return ArmPasses(arm, mine, tuple(metrics.measure(one) for one in mine))


def numbers(one: ArmPasses, slo: Mapping[str, float]) -> Json:
    """An arm's entry of a cell."""
    accept = metrics.acceptance(one.measured)
    steady = statistics.stability(one.tok_s)
    return {
        "passes": len(one.passes),
        "requests": sum(len(each.requests) for each in one.measured),
        "tok_s": _middle(one.tok_s),
        "tok_s_user": _middle(each.tok_s_user for each in one.measured),
        **metrics.latencies(one.measured),
        "accept": accept and accept.to_json(),
        "round_ms": _middle(each.round_ms for each in one.measured)["median"],
        "verify_steps": accept and accept.rounds,
        "errors": sum(each.failed for each in one.measured),
        "goodput": _middle(each.good(slo) for each in one.measured)["median"] if slo else None,
        "gpu": metrics.gpu(one.measured),
        "stable": steady.stable,
        "spread": None if steady.spread is None else round(steady.spread, 4),
    }


def compared(cell: str, arms: Sequence[ArmPasses]) -> tuple[list[Json], list[str]]:
    """Ratios of tok/s to the base arm, of passes with the same visit and repeat; and what to know of all these."""
    measured = {one.arm: one for one in arms if one.by_repeat}
    base = next((measured[name] for name in BASES if name in measured), None)
    rows, words = [], [*unquiet(cell, arms), *(word for one in arms for word in warnings_of(cell, one))]
    for one in measured.values():
        if base is None or one is base:
            continue
        shared = sorted(one.by_repeat.keys() & base.by_repeat.keys())
        if not shared:
            words.append(f"{cell}: {one.arm} and {base.arm} have no repeat in common, so there is no ratio")
            continue
        ratio = statistics.paired_ratio(
            [one.by_repeat[key] for key in shared],
            [base.by_repeat[key] for key in shared],
            [visit for visit, _ in shared],
        )
        rows.append({"arm": one.arm, "base": base.arm, "metric": "tok_s", **ratio.to_json()})
        if ratio.starts_differ:
            words.append(
                f"{cell}: the ratio of {one.arm} to {base.arm} differs between server starts more than between "
                f"repeats, so its interval is too narrow; `bench --visits 5` has one over starts"
            )
    return rows, words


def too_few(cells: Sequence[Json]) -> list[str]:
    """What the numbers of these cells cannot say, because they rest on too little."""
    words = []
    least = statistics.MIN_PAIRS
    if pairs := {row["pairs"] for cell in cells for row in cell["ratios"] if row["low"] is None}:
        words.append(
            f"{_range(pairs)} pair(s) of passes give no 95 % interval of a ratio; it takes {least}: --repeats {least}"
        )
    entries = [(cell["cell"]["key"], entry) for cell in cells for entry in cell["arms"].values()]
    if passes := {entry["passes"] for _, entry in entries if entry["spread"] is None}:
        words.append(
            f"{_range(passes)} pass(es) of an arm cannot show whether tok/s is stable; it takes 3: --repeats 3"
        )
    if small := sorted({key for key, entry in entries if 0 < entry["requests"] < metrics.TAIL}):
        words.append(
            f"fewer than {metrics.TAIL} requests in {', '.join(small)}: p99 is next to the slowest of them, not a tail"
        )
    return words


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def warnings_of(cell: str, one: ArmPasses) -> list[str]:
    """What makes an arm's numbers less than they look."""
    where = f"{cell}: {one.arm}"
    if not one.passes:
        return [f"{where} was not measured"]
    failed = sum(each.failed for each in one.measured)
    answered = sum(len(each.requests) for each in one.measured)
    words = (
        [f"{where}: {failed} of {failed + answered} requests failed; its rates leave them out"]
        if failed
        else []
    )
    drift = statistics.stability(one.tok_s).drift
    if drift is not None:
        words.append(
            f"{where}: tok/s drifts by {drift:+.0%} from the first half of its repeats to the second"
        )
    return words + _doubts_about_acceptance(where, one)


def unquiet(cell: str, arms: Sequence[ArmPasses]) -> list[str]:
    """Which arms' repeats lie far apart: one line, since a machine that is not quiet is so for most of them."""
    spreads = {one.arm: statistics.stability(one.tok_s).spread for one in arms}
    far = [
        f"{spread:.0%} in {arm}"
        for arm, spread in spreads.items()
        if spread is not None and spread > statistics.STABLE
    ]
    told = f"{cell}: repeats of tok/s lie far apart, {', '.join(far)}: the machine was not quiet"
    return [told] if far else []


def _doubts_about_acceptance(where: str, one: ArmPasses) -> list[str]:
    accept = metrics.acceptance(one.measured)
    if accept is None:
        return []
    words = []
    if accept.unknown:
        words.append(
            f"{where}: the server sent several rounds as one chunk in {accept.unknown} of {accept.requests} requests; "
            "the histogram leaves those out, the mean does not"
        )
    elif accept.merged:
        words.append(
            f"{where}: the server sent several rounds as one chunk in {accept.merged} of {accept.requests} requests; "
            "their rounds are counted by the server's own histogram, their ITL is blurred"
        )
    if accept.unlike:
        words.append(f"{where}: chunks and the server's own histogram disagree in {accept.unlike} requests")
    silent = sum(
        not answer.verify_ct and answer.after_first > 0 for each in one.measured for answer in each.requests
    )
    if silent:
        words.append(f"{where}: {silent} requests report no verify rounds; accept length leaves them out")
    for each in one.measured:
        said = metrics.engine_says(each)
        mine = metrics.acceptance([each])
        ours = mine and (sum(answer.after_first for answer in each.requests if answer.verify_ct), mine.rounds)
        if said and ours and not each.failed and said != ours:
            words.append(
                f"{where}: the engine counted {said[0]:.0f} tokens in {said[1]:.0f} rounds during a pass, its requests "
                f"{ours[0]} in {ours[1]}: somebody else used the server, or requests were preempted"
            )
            break
    return words


def _middle(values: Iterable[float | None]) -> Json:
    known = [round(value, 4) for value in values if value is not None]
    return {"median": round(median(known), 4) if known else None, "values": known}
