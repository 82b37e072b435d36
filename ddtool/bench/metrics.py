"""What one pass, and all passes of an arm, say. Pure; docs/bench-numbers.md defines every number.

Latencies are defined as `sglang.bench_serving` defines them, so that both agree on the same server. Accept length is
counted as the engine counts: the first token of an answer comes from prefill, not from a verified draft.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from statistics import median
from typing import Any

from ddtool.bench.records import Pass, Record
from ddtool.errors import UsageError

PERCENTILES = (50, 95, 99)
TAIL = 100  # with fewer values than this, p99 is next to the largest of them
SLO = ("ttft", "tpot", "e2e")  # what `slo` can bound, in ms
ENGINE_TOKENS = "sglang:ddtree_tokens_total"
ENGINE_ROUNDS = "sglang:ddtree_verify_total"


@dataclass(frozen=True)
class Request:
    """One answer that came to its end. `chunks`: (seconds since sent, completion tokens so far), tokens rising.

    verify_ct: rounds of draft and verify; None where the server reports none, as in plain decoding.
    drafts: the server's own count of this request's rounds by drafted tokens accepted, from 0 on; DFLASH has none.
    """

    chunks: tuple[tuple[float, int], ...]
    e2e_s: float
    tokens: int
    verify_ct: int | None = None
    drafts: tuple[int, ...] = ()

    @property
    def ttft_s(self) -> float:
        return self.chunks[0][0]

    @property
    def after_first(self) -> int:
        """Tokens that decoding said; prefill says the first."""
        return self.tokens - 1

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token after the first; None for an answer of one token."""
        return (self.e2e_s - self.ttft_s) / self.after_first if self.after_first else None

    @property
    def rounds(self) -> int:
        """Forwards of the target after prefill."""
        return self.after_first if self.verify_ct is None else self.verify_ct

    @property
    def itl_s(self) -> list[float]:
        """One value a token after the first chunk: its chunk's gap, shared equally by the tokens of the chunk."""
        return [
            (now - before) / (count - counted)
            for (before, counted), (now, count) in pairwise(self.chunks)
            for _ in range(count - counted)
        ]

    @property
    def gains(self) -> Counter[int] | None:
        """Rounds by the tokens that they gave, from the chunks; None when the server merged rounds into one chunk."""
        if self.chunks[0][1] != 1:
            return None
        return self._whole(Counter(count - counted for (_, counted), (_, count) in pairwise(self.chunks)))

    @property
    def told_gains(self) -> Counter[int] | None:
        """The same as the server tells it; None when it does not, or not of all rounds."""
        return self._whole(
            Counter({drafts + 1: rounds for drafts, rounds in enumerate(self.drafts) if rounds})
        )

    def _whole(self, gains: Counter[int]) -> Counter[int] | None:
        tokens = sum(gain * rounds for gain, rounds in gains.items())
        return gains if (sum(gains.values()), tokens) == (self.verify_ct, self.after_first) else None


@dataclass(frozen=True)
class Measured:
    """One pass. seconds: from the first request sent to the last answer's end. failed: requests without an answer."""

    requests: tuple[Request, ...]
    seconds: float
    failed: int
    gpu: Mapping[str, Any] | None
    metrics: Mapping[str, float]

    @property
    def tok_s(self) -> float:
        return sum(request.tokens for request in self.requests) / self.seconds

    @property
    def tok_s_user(self) -> float | None:
        return _median(1 / pace for request in self.requests if (pace := request.tpot_s))

    @property
    def round_ms(self) -> float | None:
        return _median(
            1000 * (request.chunks[-1][0] - request.ttft_s) / request.rounds
            for request in self.requests
            if request.rounds
        )

    def good(self, slo: Mapping[str, float]) -> float:
        """Requests a second that kept every bound of `slo`."""
        return sum(meets(request, slo) for request in self.requests) / self.seconds


def measure(one: Pass) -> Measured:
    answered = [answer for sample in one.samples if (answer := _answer(sample)) is not None]
    return Measured(
        requests=tuple(answered),
        seconds=float(one.end["seconds"]),
        failed=len(one.samples) - len(answered),
        gpu=one.end.get("gpu"),
        metrics=one.end.get("metrics") or {},
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """Linear between the two nearest ranks, as numpy's default. Raises ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no percentile of nothing")
    place = (len(ordered) - 1) * percent / 100
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def latencies(measured: Sequence[Measured]) -> dict[str, dict[str, float | None]]:
    """ms, over the requests (for itl: tokens) of all passes together."""
    requests = [request for one in measured for request in one.requests]
    paces = [pace for request in requests if (pace := request.tpot_s) is not None]
    return {
        "ttft_ms": _spread([request.ttft_s for request in requests]),
        "itl_ms": _spread([gap for request in requests for gap in request.itl_s]),
        "tpot_ms": _spread(paces),
        "e2e_ms": _spread([request.e2e_s for request in requests]),
    }


@dataclass(frozen=True)
class Acceptance:
    """Of all rounds of an arm. histogram: rounds by the tokens they gave, but for those of `unknown` requests.

    merged: requests with several rounds in one chunk. unlike: those whose chunks say something else than the server.
    """

    mean: float
    rounds: int
    histogram: Mapping[int, int]
    requests: int
    merged: int
    unlike: int
    unknown: int

    @property
    def by_depth(self) -> list[float]:
        """Share of rounds whose accepted path reached depth 1, 2, …: they gave more tokens than that."""
        total = sum(self.histogram.values())
        deepest = max(self.histogram, default=1)
        return [
            sum(rounds for gain, rounds in self.histogram.items() if gain > depth) / total
            for depth in range(1, deepest)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "mean": round(self.mean, 4),
            "histogram": {str(gain): self.histogram[gain] for gain in sorted(self.histogram)},
            "by_depth": [round(share, 4) for share in self.by_depth],
        }


def acceptance(measured: Sequence[Measured]) -> Acceptance | None:
    """None where no request had a round: plain decoding, or answers of one token.

    mean: tokens after the first, over rounds. So it is the engine's `ddtree_tokens_total / ddtree_verify_total`, and
    less than the `spec_accept_length` of SGLang, which has prefill's token in it.
    """
    drafted = [request for one in measured for request in one.requests if request.verify_ct]
    rounds = sum(request.rounds for request in drafted)
    if not rounds:
        return None
    seen = [(request.gains, request.told_gains) for request in drafted]
    known = [seen_gains or told for seen_gains, told in seen]
    histogram: Counter[int] = Counter()
    for one in known:
        histogram.update(one or {})
    return Acceptance(
        mean=sum(request.after_first for request in drafted) / rounds,
        rounds=rounds,
        histogram=histogram,
        requests=len(drafted),
        merged=sum(gains is None for gains, _ in seen),
        unlike=sum(gains is not None and told is not None and gains != told for gains, told in seen),
        unknown=sum(one is None for one in known),
    )


def engine_says(one: Measured) -> tuple[float, float] | None:
    """(tokens, rounds) that the engine counted during the pass, where its metrics are on."""
    tokens = [value for name, value in one.metrics.items() if name.partition("{")[0] == ENGINE_TOKENS]
    rounds = [value for name, value in one.metrics.items() if name.partition("{")[0] == ENGINE_ROUNDS]
    return (sum(tokens), sum(rounds)) if tokens and rounds else None


def gpu(measured: Sequence[Measured]) -> dict[str, float | None] | None:
    """The most memory of any pass; power as the mean over time."""
    seen = [(one.gpu, one.seconds) for one in measured if one.gpu]
    if not seen:
        return None
    memory = [card["memory_mib"] for card, _ in seen if card.get("memory_mib") is not None]
    power = [(card["power_w"], seconds) for card, seconds in seen if card.get("power_w") is not None]
    mean = sum(w * s for w, s in power) / sum(s for _, s in power) if power else None
    return {"memory_mib": max(memory, default=None), "power_w": None if mean is None else round(mean, 1)}


def checked_slo(slo: Mapping[str, float]) -> Mapping[str, float]:
    """Raises UsageError for a bound that is none."""
    for name, bound in slo.items():
        if name not in SLO or not bound > 0:
            raise UsageError(
                f"not a bound: {name}={bound}", hint=f"--slo {'=MS,'.join(SLO)}=MS, or some of them"
            )
    return slo


def meets(request: Request, slo: Mapping[str, float]) -> bool:
    """An answer of one token has no TPOT, and keeps every bound on it."""
    taken = {"ttft": request.ttft_s, "tpot": request.tpot_s or 0.0, "e2e": request.e2e_s}
    return all(1000 * taken[name] <= bound for name, bound in slo.items())


def _answer(sample: Record) -> Request | None:
    """None when the request failed, was aborted, or said nothing."""
    if sample.get("error") or sample.get("status") != 200 or sample.get("finish") == "abort":
        return None
    chunks: list[tuple[float, int]] = []
    for at, count in sample["chunks"]:
        if count > (chunks[-1][1] if chunks else 0):  # a chunk without a new token ends no token's wait
            chunks.append((float(at), int(count)))
    tokens = sample.get("completion_tokens") or 0
    if not chunks or not tokens or sample.get("e2e_s") is None:
        return None
    return Request(
        chunks=tuple(chunks),
        e2e_s=float(sample["e2e_s"]),
        tokens=int(tokens),
        verify_ct=sample.get("verify_ct"),
        drafts=tuple(sample.get("drafts_histogram") or ()),
    )


def _spread(seconds: Sequence[float]) -> dict[str, float | None]:
    return {
        f"p{percent}": round(1000 * percentile(seconds, percent), 4) if seconds else None
        for percent in PERCENTILES
    }


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
