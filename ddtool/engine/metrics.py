"""DDTREE's numbers beside SGLang's own on /metrics: same registry, same labels, only with --enable-metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

STEPS = ("draft", "grow", "verify", "choose", "follow")  # of a round, in order
ROUND_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class RoundMetrics:
    """Counters of all trees verified since the start.

    Accept length is `ddtree_tokens_total / ddtree_verify_total`; `ddtree_accepted_total` has it by depth.
    """

    def __init__(self, depth: int, labels: Mapping[str, str]) -> None:
        # Only now: SGLang has to set PROMETHEUS_MULTIPROC_DIR first
        from prometheus_client import Counter, Histogram  # type: ignore[import-not-found]

        names, values = [*labels], [*labels.values()]
        self._verified = Counter(
            "sglang:ddtree_verify_total", "Verified trees, one per round and request.", names
        ).labels(*values)
        self._tokens = Counter(
            "sglang:ddtree_tokens_total",
            "Tokens gained by verified trees, each round's last one included.",
            names,
        ).labels(*values)
        accepted = Counter(
            "sglang:ddtree_accepted_total", "Trees whose accepted path reached this depth.", [*names, "depth"]
        )
        self._accepted = [accepted.labels(*values, str(level)) for level in range(1, depth + 1)]
        seconds = Histogram(
            "sglang:ddtree_seconds",
            "Time of one round's step on the device.",
            [*names, "step"],
            buckets=ROUND_SECONDS,
        )
        self._seconds = {step: seconds.labels(*values, step) for step in STEPS}

    def observe(self, accepted: Sequence[int], seconds: Mapping[str, float]) -> None:
        """accepted: drafted tokens that each request took this round."""
        self._verified.inc(len(accepted))
        self._tokens.inc(sum(accepted) + len(accepted))
        for count in accepted:
            for level in range(count):
                self._accepted[level].inc()
        for step, duration in seconds.items():
            self._seconds[step].observe(duration)
