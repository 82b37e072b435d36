"""What follows from a profile: tokens per request in each worker's graphs, and the batch sizes captured.

Both follow SGLang's source (0.5.11 to 0.5.13: `get_batch_sizes_to_capture`, `ServerArgs`), not its manual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddtool.profile.schema import Profile

SPECULATIVE_MAX_REQUESTS = 48  # what SGLang sets for DFLASH when nobody says
DEFAULT_MAX_REQUESTS = 2048  # its lower estimate without speculation


@dataclass(frozen=True)
class Width:
    """Tokens per request in one worker's graphs."""

    worker: str  # "target" or "draft"
    tokens: int
    why: str


@dataclass(frozen=True)
class Multiple:
    """What batch size × width must divide by to be captured, and why."""

    value: int
    reason: str
    ignores_width: bool  # two-batch overlap counts one token per request


@dataclass(frozen=True)
class Dropped:
    batch: int
    why: str


@dataclass(frozen=True)
class Capture:
    """The batch sizes that one worker captures graphs for."""

    width: Width
    multiple: Multiple
    max_requests: int
    kept: list[int]
    dropped: list[Dropped]

    @property
    def max_tokens(self) -> int:
        """Rows of the largest graph; the attention backend sizes its buffers by it."""
        return max(self.kept, default=0) * self.width.tokens


def widths(profile: Profile) -> list[Width]:
    """One Width per worker. A graph narrower than what verify sends is a crash at its first replay."""
    spec = profile.speculative
    if spec.algorithm == "NONE":
        return [Width("target", 1, "decoding sends one token")]
    assert spec.block_size is not None  # the schema requires it
    draft = Width("draft", spec.block_size, f"a DFlash drafter fills its block of {spec.block_size}")
    if spec.algorithm == "DFLASH":
        return [
            Width("target", spec.block_size, f"verifies one chain of the block, {spec.block_size}"),
            draft,
        ]
    assert spec.budget is not None
    return [Width("target", spec.budget + 1, f"verifies the tree: budget {spec.budget} and its root"), draft]


def capture_multiple(profile: Profile) -> Multiple:
    """The multiple of SGLang's filter: gathered buffers want rows that divide among attention ranks."""
    dp = _dp(profile)
    cp = _integer(profile, 1, "attn-cp-size", "attention-context-parallel-size")
    attention_tp = max(1, profile.parallel.tp // dp // cp)
    value, reasons = 1, []
    overlap = bool(profile.flag("enable-two-batch-overlap"))
    if overlap:
        value *= 2
        reasons.append("two-batch overlap halves a batch")
    gathered = _gathered_buffer_reason(profile, dp)
    if gathered:
        value *= attention_tp
        reasons.append(f"{gathered} gathers over {attention_tp} attention ranks")
    if value % cp != 0:
        value *= cp
        reasons.append(f"context parallel over {cp} ranks")
    no_reason = "no gathered buffer: no dp-attention, no MoE all-to-all, moe-dense-tp-size is not 1"
    return Multiple(value, "; ".join(reasons) or no_reason, overlap)


def _gathered_buffer_reason(profile: Profile, dp: int) -> str | None:
    """SGLang's require_gathered_buffer: the setting that makes it true, or None."""
    a2a = profile.flag("moe-a2a-backend", "none")
    dense_tp = profile.flag("moe-dense-tp-size")
    scattered = a2a != "none" or dense_tp == 1
    scatter_reason = f"moe-a2a-backend {a2a}" if a2a != "none" else "moe-dense-tp-size 1"
    if not profile.flag("enable-dp-attention"):
        return scatter_reason if scattered else None
    per_group = profile.parallel.tp // dp
    lm_head = bool(profile.flag("enable-dp-lm-head"))
    if dense_tp is None or not lm_head or a2a == "none" or dense_tp > per_group:
        return f"dp-attention of {dp}"
    return scatter_reason if scattered and dp < profile.parallel.tp else None


def _dp(profile: Profile) -> int:
    """Ranks that attention is split over by request; 1 without dp-attention."""
    given = _integer(profile, 1, "dp-size", "data-parallel-size", "dp")
    return given if profile.flag("enable-dp-attention") else 1


def _integer(profile: Profile, default: int, *names: str) -> int:
    for name in names:
        value = profile.flag(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def max_requests(profile: Profile) -> int:
    """Requests that one data-parallel worker runs at once: the size of SGLang's request pool."""
    default = DEFAULT_MAX_REQUESTS if profile.speculative.algorithm == "NONE" else SPECULATIVE_MAX_REQUESTS
    total = _integer(profile, default, "max-running-requests")
    return max(1, total // _integer(profile, 1, "dp-size", "data-parallel-size", "dp"))


def default_max_bs(memory_gib: float, tp: int) -> int:
    """SGLang's cuda_graph_max_bs for a card of that size."""
    steps = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))
    for below, small_tp, large_tp in steps:
        if memory_gib < below:
            return small_tp if tp < 4 else large_tp
    return 512


def requested_sizes(profile: Profile) -> list[int]:
    """Batch sizes that SGLang starts from: the profile's own list, or its default one up to max_bs."""
    if profile.graphs.bs is not None:
        return sorted(set(profile.graphs.bs))
    card = profile.parallel.card
    largest = profile.graphs.max_bs or (default_max_bs(card.memory_gib, profile.parallel.tp) if card else 160)
    if profile.flag("disable-cuda-graph-padding"):
        return list(range(1, largest + 1))
    if profile.speculative.algorithm == "NONE":
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    else:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, largest + 1, 16)
    return sorted({size for size in sizes if size <= largest} | {largest})


def filter_sizes(
    requested: Sequence[int], width: int, multiple: int, requests: int
) -> tuple[list[int], list[Dropped]]:
    """SGLang's filter: (kept, dropped). `requests` is the request pool's size, rounded up to the multiple.

    When the list reaches beyond the pool, the pool's own size joins it, so that a full batch has a graph.
    """
    limit = -(-requests // multiple) * multiple
    sizes = sorted({*requested, limit} if max(requested) > limit else set(requested))
    kept, dropped = [], []
    for size in sizes:
        if size * width % multiple:
            dropped.append(Dropped(size, f"{size} × {width} tokens is no multiple of {multiple}"))
        elif size > limit:
            dropped.append(Dropped(size, f"at most {limit} requests run at once"))
        else:
            kept.append(size)
    return kept, dropped


def captures(profile: Profile) -> list[Capture]:
    """What each worker captures; empty when graphs are off."""
    if not profile.graphs.enabled:
        return []
    multiple = capture_multiple(profile)
    requests = max_requests(profile)
    result = []
    for width in widths(profile):
        counted = 1 if multiple.ignores_width else width.tokens
        kept, dropped = filter_sizes(requested_sizes(profile), counted, multiple.value, requests)
        result.append(Capture(width, multiple, requests, kept, dropped))
    return result
