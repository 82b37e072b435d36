"""How one rank's GPU memory divides: weights, KV cache, and what must fit beside them.

SGLang takes `mem-fraction-static` for the target's weights and the KV cache of target and drafter. Drafter
weights, the attention backend's graph buffers and activations come out of the rest, and are allocated last:
when they do not fit, the start dies minutes later, at graph capture.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddtool.profile.derived import captures, requested_sizes
from ddtool.profile.schema import Card, Profile
from ddtool.profile.shapes import BYTES, ModelShape

GIB = 2**30
CONTEXT_GIB = 1.0  # assumed: CUDA context and NCCL, taken before the first weight


@dataclass(frozen=True)
class TritonBuffers:
    """What the triton backend allocates per rank for graphs of `tokens` rows, in bytes."""

    worker: str
    tokens: int
    splits: int
    attn_logits: int  # fp32 partial results; a verify graph uses none of it, and it is allocated all the same
    kv_indices: int
    custom_mask: int

    @property
    def total(self) -> int:
        return self.attn_logits + self.kv_indices + self.custom_mask


def triton_buffers(
    worker: str, shape: ModelShape, tokens: int, context: int, tp: int, sms: int, base_splits: int = 8
) -> TritonBuffers:
    """Buffers for graphs of `tokens` rows (batch × width) and requests of up to `context` tokens."""
    splits = base_splits
    if shape.attention == "mla":
        # MLA's decode kernel is split until it fills the card, or until a split is 32 tokens short.
        splits = max(base_splits, min(_power_of_two(sms), _power_of_two(-(-context // 32))))
    heads = max(1, shape.heads // tp)
    return TritonBuffers(
        worker=worker,
        tokens=tokens,
        splits=splits,
        attn_logits=tokens * heads * splits * shape.value_dim * 4,
        kv_indices=tokens * context * 8,
        custom_mask=tokens * context,
    )


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True)
class MemoryPlan:
    """One rank, in GiB unless named otherwise. `outside_*` is what mem-fraction-static leaves."""

    card: Card
    fraction: float
    weights: float
    kv_pool: float
    kv_bytes_per_token: int
    pool_tokens: int
    context: int
    outside: float
    draft_weights: float
    buffers: list[TritonBuffers]
    activations: float

    @property
    def outside_needed(self) -> float:
        return self.draft_weights + sum(b.total for b in self.buffers) / GIB + self.activations


def plan(profile: Profile) -> MemoryPlan | None:
    """The estimate, or None when the profile knows no card, shape, weights or context to make one from."""
    card, shape, context = profile.parallel.card, profile.model.shape, profile.context_length
    if card is None or shape is None or shape.weights_gib is None or context is None:
        return None
    tp = profile.parallel.tp
    usable = card.memory_gib - CONTEXT_GIB
    fraction = _fraction(profile, card)
    draft = profile.drafter.shape if profile.drafter and profile.speculative.algorithm != "NONE" else None
    weights = shape.weights_gib / tp
    kv_pool = usable * fraction - weights
    per_token = _cell_size(profile, shape, draft)
    return MemoryPlan(
        card=card,
        fraction=fraction,
        weights=weights,
        kv_pool=kv_pool,
        kv_bytes_per_token=per_token,
        pool_tokens=max(0, int(kv_pool * GIB / per_token)),
        context=context,
        outside=usable * (1 - fraction),
        draft_weights=(draft.weights_gib or 0.0) / tp if draft else 0.0,
        buffers=_buffers(profile, shape, draft, context, card.sms),
        activations=_activations_gib(profile),
    )


def _buffers(
    profile: Profile, shape: ModelShape, draft: ModelShape | None, context: int, sms: int
) -> list[TritonBuffers]:
    if profile.attention_backend != "triton":
        return []
    shapes = {"target": shape, "draft": draft}
    splits = profile.flag("triton-attention-num-kv-splits", 8)
    result = []
    for capture in captures(profile):
        worker = capture.width.worker
        sizes = shapes[worker]
        if sizes is not None:
            tp = profile.parallel.tp
            result.append(triton_buffers(worker, sizes, capture.max_tokens, context, tp, sms, splits))
    return result


def _cell_size(profile: Profile, shape: ModelShape, draft: ModelShape | None) -> int:
    """Bytes per cached token as SGLang budgets them: a drafter's layers count like the target's."""
    given = str(profile.flag("kv-cache-dtype", "auto"))
    element = 1 if given.startswith("fp8") else BYTES[shape.dtype]
    target = shape.kv_bytes_per_token(profile.parallel.tp, element)
    return target if draft is None else target * (shape.layers + draft.layers) // shape.layers


def _prefill_tokens(profile: Profile, card_gib: float | None = None) -> int:
    chunk = profile.flag("chunked-prefill-size")
    if isinstance(chunk, int) and chunk > 0:
        return max(chunk, 2048)
    card_gib = card_gib or (profile.parallel.card.memory_gib if profile.parallel.card else 0)
    return 2048 if card_gib < 35 else 4096 if card_gib < 60 else 8192 if card_gib < 160 else 16384


def _activations_gib(profile: Profile) -> float:
    """SGLang's own rule of thumb: 512 MiB, and 1.5 MiB per token of a prefill chunk."""
    return 0.5 + _prefill_tokens(profile) * 1.5 / 1024


def _fraction(profile: Profile, card: Card) -> float:
    """mem-fraction-static: the profile's, or what SGLang computes for the card."""
    given = profile.flag("mem-fraction-static")
    if isinstance(given, float):
        return given
    reserved = 0.5 + _prefill_tokens(profile, card.memory_gib) * 1.5 / 1024
    reserved += max(requested_sizes(profile)) * 2 / 1024 + profile.parallel.tp / 8
    if card.memory_gib > 60:
        reserved = max(reserved, 10)
    if profile.speculative.algorithm != "NONE":
        reserved += 4
    return round((card.memory_gib - reserved) / card.memory_gib, 3)
