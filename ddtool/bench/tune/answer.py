"""Everything a tuning run found, as `ddtool.tune/1`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from ddtool.bench.tune.alike import judged
from ddtool.bench.tune.checks import checks
from ddtool.bench.tune.experts import independent
from ddtool.bench.tune.found import Found, choice, is_of
from ddtool.bench.tune.predict import Load
from ddtool.bench.tune.recommend import Choice
from ddtool.bench.tune.rounds import Timing
from ddtool.bench.tune.trees import CHAIN, Shape
from ddtool.engine.metrics import STEPS

SCHEMA = "ddtool.tune/1"
SHOWN = (8, 12, 16, 20, 24, 32, 40, 48, 64)  # budgets of a predicted curve, beside those that were run
TREE_STEPS = ("grow", "choose", "follow")  # a tree's own; the others are the chain's as well
UNTIMED = "draft, verify and host"  # of a server that times no steps, as stock SGLang with the chain

Json = dict[str, Any]


def answer(found: Found, about: Mapping[str, Any], chosen: Choice, load: Load, overlay: str) -> Json:
    """about: run.json. chosen: what is recommended, for `load`. overlay: the profile that does it."""
    errors = [curve.error for curve in found.predictor.curves.values() if curve.error is not None]
    curve = found.predictor.curves[load]
    lengths = acceptance_rows(found)
    return {
        "schema": SCHEMA,
        **{key: about.get(key) for key in ("run", "profile", "host", "fingerprint")},
        "taints": list(about.get("taints") or []),
        "warnings": [*(about.get("warnings") or []), *remarks(found)],
        "verify": [row for one in found.loads for row in verify_rows(found, one)],
        "fit": {
            "model": curve.model,
            "params": {name: round(value, 4) for name, value in curve.params.items()},
            "rel_error": round(fmean(errors), 4) if errors else None,
        },
        "acceptance": lengths,
        "predicted": [row for one in found.loads for row in predicted_rows(found, one)],
        "measured": [row for one in found.main for row in measured_rows(found, one)],
        "experts": expert_rows(found),
        "split": split_rows(found, load),
        "recommendation": {
            "arm": found.name(chosen.shape),
            "concurrency": load.concurrency,
            "why": chosen.why,
            "overlay": overlay,
            "gain_over_chain": round(chosen.gain, 4) if not chosen.is_chain else 0.0,
        },
        "by_load": [by_load(found, one) for one in found.main],
        "checks": checks(found, lengths, load),
    }


def where(found: Found, load: Load) -> Json:
    return {"workload": load.workload, "concurrency": load.concurrency, "context": found.context(load)}


def by_load(found: Found, load: Load) -> Json:
    one = choice(found, load)
    return {
        **where(found, load),
        "arm": found.name(one.shape),
        "why": one.why,
        "best_tree": found.name(one.best),
    }


def verify_rows(found: Found, load: Load) -> list[Json]:
    """Trees by width. draft_ms, verify_ms (the target's forward), tree_ms (the tree's own): as the server times them.

    One that times the tree's alone, as the engine did once, leaves the rest of the round in verify_ms.
    """
    rows = []
    for width, ms in found.predictor.costs[load].items():
        steps = step_medians([one for one in found.timings if is_of(one, load) and _width(one) == width])
        tree = sum(steps[step] for step in TREE_STEPS if step in steps) if steps else None
        verify = steps.get("verify", ms - (tree or 0.0))
        rows.append(
            {
                **where(found, load),
                "width": width,
                "round_ms": round(ms, 4),
                "draft_ms": round(steps["draft"], 4) if "draft" in steps else None,
                "verify_ms": round(verify, 4),
                "tree_ms": None if tree is None else round(tree, 4),
                "fitted_ms": round(found.predictor.curves[load].at(width) - ms + verify, 4),
            }
        )
    return rows


def step_medians(some: Sequence[Timing]) -> dict[str, float]:
    """Milliseconds by step, in a round's order; empty where the server times none."""
    timed = [one.steps for one in some if one.steps]
    return {
        step: median(one[step] for one in timed)
        for step in STEPS
        if timed and all(step in one for one in timed)
    }


def _width(timing: Timing) -> int | None:
    return None if timing.shape is None or timing.shape.is_chain else timing.shape.budget + 1


def acceptance_rows(found: Found) -> list[Json]:
    """Accept lengths, predicted and as the server counted them over the same prompts; budget 0 is the chain.

    measured: of all answers. judged: the prediction against those that are the traced texts, see `alike`.
    """
    acceptance = found.predictor.acceptance
    measured: dict[Shape, list[Timing]] = {}
    for one in [*found.timings, *found.verified]:
        if one.shape is not None and is_of(one, found.widest):
            measured.setdefault(one.shape, []).append(one)
    shapes = {CHAIN, *measured, *(Shape(budget, found.topk) for budget in SHOWN)}
    rows = []
    for shape in sorted(shape for shape in shapes if found.is_traced(shape)):
        runs = measured.get(shape, [])
        tokens = sum(sum(one.tokens) for one in runs)
        rounds = sum(sum(one.rounds) for one in runs)
        rows.append(
            {
                "budget": shape.budget,
                "topk": shape.topk,
                "predicted": round(acceptance.length(shape), 4),
                "measured": round(tokens / rounds, 4) if rounds else None,
                "error": round(acceptance.error(shape), 4),
                "judged": judged_row(found, shape, runs) if runs else None,
            }
        )
    return rows


def judged_row(found: Found, shape: Shape, runs: Sequence[Timing]) -> Json:
    """How far the prediction is off, over which answers, and how far it may be."""
    one = judged(found.predictor.acceptance, shape, runs, sampled=found.is_sampled)
    return {
        "off": round(one.off, 4),
        "within": round(one.within, 4),
        "over": "alike" if one.by_text else "all",
        "alike": one.alike,
        "answers": one.answers,
    }


def predicted_rows(found: Found, load: Load) -> list[Json]:
    run = {one.shape for one in [*found.timings, *found.verified] if one.shape is not None}
    shown = {shape for shape in found.shapes if shape.budget in SHOWN} | run | {CHAIN}
    return [
        {**where(found, load), "arm": found.name(shape), "tok_s": round(found.predictor.rate(shape, load), 2)}
        for shape in sorted(shown)
        if found.is_traced(shape)
    ]


def measured_rows(found: Found, load: Load) -> list[Json]:
    """Medians; of an arm that was verified, of those passes alone: only they ran beside their neighbours."""
    rates = {**found.rates(found.timings, load), **found.rates(found.verified, load)}
    return [
        {
            **where(found, load),
            "arm": found.name(shape),
            "tok_s": round(median(values), 2),
            "values": [round(value, 2) for value in values],
        }
        for shape, values in sorted(rates.items())
    ]


def expert_rows(found: Found) -> list[Json] | None:
    """`distinct` as SGLang's recorder counted, or by the bound of independent routing; `bound` says which."""
    if found.experts is None:
        return None
    known = found.experts
    widths = sorted({1, *(width for points in found.predictor.costs.values() for width in points)})
    return [
        {
            "width": width,
            "distinct": round(known.distinct(width), 1),
            "of": known.count,
            "independent": round(independent(width, known.count, known.chosen), 1),
            "bound": not known.measured,
        }
        for width in widths
    ]


def split_rows(found: Found, load: Load) -> list[Json]:
    """Milliseconds of a round by step; what the server does not time is one piece."""
    rows: list[Json] = []
    arms: dict[str, list[Timing]] = {}
    for one in found.timings:
        if is_of(one, load):
            arms.setdefault(one.arm, []).append(one)
    for arm, some in arms.items():
        steps = step_medians(some)
        # A round is a median and its steps are means: on a noisy machine they can be the longer ones
        rest = max(0.0, median(one.round_ms for one in some) - sum(steps.values()))
        pieces = {**steps, "host": rest} if "verify" in steps else {UNTIMED: rest, **steps}
        if arm == "plain":
            pieces = {"step": rest}
        rows += [{"arm": arm, "step": step, "ms": round(ms, 4)} for step, ms in pieces.items()]
    return rows


def remarks(found: Found) -> list[str]:
    acceptance = found.predictor.acceptance
    said = [*found.lost]
    if not acceptance.is_exact:
        said.append(
            "the trace has no draft for some positions: accept lengths are means over the others, the chain's is "
            "taken from its own run"
        )
    if found.experts is not None and not found.experts.measured:
        said.append(
            "experts: not measured; the bound of independent routing, and tokens of one tree read fewer"
        )
    if any(load.workload != found.traced for load in found.loads):
        said.append(
            f"loads of other contexts have the cost that was measured there and the acceptance of {found.traced}"
        )
    return said
