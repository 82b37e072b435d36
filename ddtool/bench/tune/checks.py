"""What of a prediction can be held against a measurement, and how it stood. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from ddtool.bench.tune import alike, recommend
from ddtool.bench.tune.found import Found, choice, is_of
from ddtool.bench.tune.predict import Load

WITHIN = 0.10

Json = dict[str, Any]


def checks(found: Found, lengths: Sequence[Mapping[str, Any]], load: Load) -> list[Json]:
    """lengths: accept lengths, as the answer has them: a row a shape, `judged` where it was measured."""
    fit = found.predictor.curves[load].error
    listed = [
        _check("fit", fit, "of a round's time at widths left out") if fit is not None else None,
        _accept_length([row["judged"] for row in lengths if row["judged"] is not None]),
        _prediction(found),
        _recommendation(found),
    ]
    return [one for one in listed if one is not None]


def _check(name: str, value: float, what: str) -> Json:
    return {
        "name": name,
        "ok": abs(value) <= WITHIN,
        "detail": f"{abs(value):.1%} {what} (good up to {WITHIN:.0%})",
    }


def _accept_length(judged: Sequence[Mapping[str, Any]]) -> Json | None:
    """Of all shapes. Those with enough answers that are the traced texts are judged by these, the others by all."""
    if not judged:
        return None
    parts = [_lengths(rows) for rows in _groups(judged)]
    ok = all(abs(row["off"]) <= row["within"] for row in judged)
    return {"name": "accept length", "ok": ok, "detail": "; ".join(parts)}


def _groups(judged: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """By what was judged, and whether the samples told which answers are the traced texts."""
    by: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for row in judged:
        by.setdefault((row["over"], row["alike"] is None), []).append(row)
    yield from by.values()


def _lengths(rows: Sequence[Mapping[str, Any]]) -> str:
    """The worst of some shapes that were judged in the same way, and in which."""
    worst = max(rows, key=lambda row: abs(row["off"]) / row["within"])
    answers, same = sum(row["answers"] for row in rows), sum(row["alike"] or 0 for row in rows)
    if worst["over"] == "alike":
        over = f"over the {same} of {answers} answers that are the traced texts"
    elif worst["alike"] is None:
        over = "over all answers: the samples do not say which of them are the traced texts"
    else:
        over = f"over all answers, since only {same} of {answers} are the traced texts"
    good = f"good up to {worst['within']:.0%}"
    if worst["within"] > alike.WITHIN:
        good += f", {alike.ERRORS} standard errors"
    return f"{abs(worst['off']):.1%} at worst, predicted against measured, {over} ({good})"


def _prediction(found: Found) -> Json | None:
    """The worst arm: of those that were verified or, without a verification, that the curves were made from.

    Its rounds may be others than those predicted, because its texts are; what is left with its own is the cost's error.
    """
    worst: tuple[float, float, str] | None = None
    for load in found.main:
        passes = [one for one in found.verified or found.timings if is_of(one, load)]
        for shape, values in found.rates(passes, load).items():
            if not found.is_traced(shape):
                continue
            measured = median(values)
            off = found.predictor.rate(shape, load) / measured - 1
            played = median(found.predictor.replayed(one) for one in passes if one.shape == shape)
            if worst is None or abs(off) > abs(worst[0]):
                worst = off, played / measured - 1, f"{found.name(shape)} at concurrency {load.concurrency}"
    if worst is None:
        return None
    off, cost, arm = worst
    made = _check("prediction", off, "of tok/s at worst, predicted against measured")
    more = f"{arm} is predicted {off:+.1%}, and {cost:+.1%} with the rounds that it really took"
    return {**made, "detail": f"{made['detail']}: {more}"}


def _recommendation(found: Found) -> Json | None:
    """Of all loads that were verified the worst; and the worst of what would be run without a verification.

    The first is small by its making, since what was measured chose the arm; the second says what a prediction is
    worth.
    """
    final: list[tuple[float, str]] = []
    alone: list[tuple[float, str]] = []
    for load in found.main:
        rates = {shape: median(values) for shape, values in found.rates(found.verified, load).items()}
        if not rates:
            continue
        for kept, one in ((final, choice(found, load)), (alone, found.predicted(load))):
            if one.shape in rates:
                arm = f"{found.name(one.shape)} at concurrency {load.concurrency}"
                kept.append((1 - rates[one.shape] / max(rates.values()), arm))
    if not final:
        return None
    below, arm = max(final, key=itemgetter(0))
    detail = f"{arm} is {below:.1%} below the best arm verified (good up to {recommend.CLOSE:.0%})"
    if alone:
        lost, guess = max(alone, key=itemgetter(0))
        detail += f"; by prediction alone {guess}, {lost:.1%} below"
    return {"name": "recommendation", "ok": below <= recommend.CLOSE, "detail": detail}
