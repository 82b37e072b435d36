"""What of a prediction can be held against a measurement, and how it stood. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ddtool.bench.tune import recommend
from ddtool.bench.tune.found import Found
from ddtool.bench.tune.predict import Load
from ddtool.bench.tune.recommend import Choice

WITHIN, ACCEPT_WITHIN = 0.10, 0.02

Json = dict[str, Any]


def checks(found: Found, lengths: Sequence[Mapping[str, Any]], chosen: Choice, load: Load) -> list[Json]:
    """lengths: accept lengths, `predicted` and `measured`, as the answer has them.

    Sampled texts differ from run to run: by three standard errors of a difference at most.
    """
    errors = [row["error"] for row in lengths if found.is_sampled]
    accept = max([ACCEPT_WITHIN, *(3 * 2**0.5 * error for error in errors)])
    listed = [
        _check("fit", found.predictor.curves[load].error, WITHIN, "of a round's time at widths left out"),
        _check("accept length", _worst_accept(lengths), accept, "at worst, predicted against measured"),
        _check("prediction", _worst_rate(found), WITHIN, "of tok/s at worst, predicted against measured"),
    ]
    rates = {shape: median(values) for shape, values in found.rates(found.verified, load).items()}
    if chosen.shape in rates:
        below = 1 - rates[chosen.shape] / max(rates.values())
        detail = (
            f"{found.name(chosen.shape)} is {below:.1%} below the best of {len(rates)} arms run side by side"
        )
        listed.append({"name": "recommendation", "ok": below <= recommend.CLOSE, "detail": detail})
    return [one for one in listed if one is not None]


def _check(name: str, value: float | None, within: float, what: str) -> Json | None:
    if value is None:
        return None
    return {"name": name, "ok": value <= within, "detail": f"{value:.1%} {what} (good up to {within:.0%})"}


def _worst_accept(lengths: Sequence[Mapping[str, Any]]) -> float | None:
    apart = [abs(row["predicted"] / row["measured"] - 1) for row in lengths if row["measured"] is not None]
    return max(apart, default=None)


def _worst_rate(found: Found) -> float | None:
    """Over the verified arms, or, without a verification, over those that the curves were made from."""
    apart = []
    for load in found.main:
        for shape, values in found.rates(found.verified or found.timings, load).items():
            if found.is_traced(shape):
                apart.append(abs(found.predictor.rate(shape, load) / median(values) - 1))
    return max(apart, default=None)
