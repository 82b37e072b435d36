"""Checks of what runs: network, provider, attention backend, tree, tensor parallelism, drafter pair."""

from __future__ import annotations

from collections.abc import Iterator

from ddtool.profile.findings import Finding
from ddtool.profile.schema import LOOPBACK, Profile

PLUGIN_RELEASES = ("0.5.12.post1", "0.5.13.post1")
TREE_BACKENDS = {"mla": ("triton",), "gqa": ("triton", "flashinfer")}
DRAFT_BACKENDS = ("flashinfer", "fa3", "fa4", "triton")


def network(profile: Profile) -> Iterator[Finding]:
    service = profile.service
    if service.bind not in LOOPBACK and service.api_key is None:
        yield Finding(
            "refuse",
            "service.bind",
            f"{service.bind} lets anyone who reaches the host use the model",
            "bind to 127.0.0.1, or set service.api_key to ${env:NAME}",
        )


def provider(profile: Profile) -> Iterator[Finding]:
    engine, algorithm = profile.engine, profile.speculative.algorithm
    if engine.provider == "plugin" and engine.release not in PLUGIN_RELEASES:
        yield Finding(
            "refuse",
            "engine.release",
            f"ddtool's engine runs on SGLang {' and '.join(PLUGIN_RELEASES)}, not on {engine.release}",
            "choose one of these releases, or provider builtin",
        )
    if engine.provider == "plugin" and algorithm == "NONE":
        yield Finding(
            "warn", "engine.provider", "the engine has nothing to do without speculation", "provider builtin"
        )
    if profile.fork_flags and not any("ddtree" in flag for flag in profile.server_args):
        yield Finding(
            "warn",
            "speculative.budget",
            "with provider builtin the budget travels in your fork's own flags, and none is given",
            "put them under server_args, in the fork's spelling",
        )
    if engine.install == "existing" and (engine.index or engine.wheelhouse):
        yield Finding("warn", "engine.install", "index and wheelhouse are used by install managed only")


def attention(profile: Profile) -> Iterator[Finding]:
    backend, shape = profile.attention_backend, profile.model.shape
    for flag in ("prefill-attention-backend", "decode-attention-backend"):
        other = profile.flag(flag)
        if other is not None and other != backend:
            yield Finding(
                "refuse",
                f"server_args.{flag}",
                "with split backends verify runs on the prefill backend, and may be handed a tree mask that "
                "it ignores",
                f"remove it: {backend} serves both",
            )
    if profile.speculative.algorithm == "NONE":
        return
    if profile.speculative.algorithm == "DDTREE":
        kind = shape.attention if shape else "mla"
        allowed = TREE_BACKENDS[kind] if profile.engine.provider == "builtin" else ("triton",)
        if backend not in allowed:
            yield Finding(
                "refuse",
                "attention_backend",
                f"{backend} ignores the tree mask ({kind}, under graphs) without an error: the tree would be "
                "verified as a chain",
                "attention_backend: triton",
            )
    draft = profile.flag("speculative-draft-attention-backend", backend)
    if draft not in DRAFT_BACKENDS:
        yield Finding(
            "refuse",
            "attention_backend",
            f"a DFlash drafter cannot run on {draft}, only on {', '.join(DRAFT_BACKENDS)}",
            "set server_args.speculative-draft-attention-backend to triton",
        )


def tree_settings(profile: Profile) -> Iterator[Finding]:
    spec, page = profile.speculative, profile.flag("page-size")
    workers = profile.flag("tokenizer-worker-num", 1)
    if profile.engine.provider == "plugin" and workers != 1:
        yield Finding(
            "refuse",
            "server_args.tokenizer-worker-num",
            "extra HTTP workers load no plugin, and end with an unknown algorithm",
            "remove it, or set it to 1",
        )
    if spec.algorithm != "DDTREE":
        return
    assert spec.budget is not None
    assert spec.block_size is not None
    if page not in (None, 1):
        yield Finding(
            "refuse",
            "server_args.page-size",
            f"an accepted path lies scattered, and pages of {page} cannot be committed token by token",
            "page-size: 1",
        )
    if spec.budget + 1 < spec.block_size:
        yield Finding(
            "refuse",
            "speculative.budget",
            f"a tree of budget + 1 = {spec.budget + 1} tokens is narrower than the block of "
            f"{spec.block_size}, which sizes the drafter's slots",
            f"a budget of {spec.block_size - 1} or more",
        )
    for flag in ("enable-dp-attention", "enable-mixed-chunk"):
        if profile.flag(flag):
            yield Finding(
                "refuse", f"server_args.{flag}", "tree verification does not support it", "remove it"
            )
    if profile.flag("pp-size", profile.flag("pipeline-parallel-size", 1)) != 1:
        yield Finding(
            "refuse", "server_args.pp-size", "DFlash workers run without pipeline parallelism", "remove it"
        )


def division(profile: Profile) -> Iterator[Finding]:
    tp = profile.parallel.tp
    drafter = profile.drafter if profile.speculative.algorithm != "NONE" else None
    for key, shape in (("model", profile.model.shape), ("drafter", drafter.shape if drafter else None)):
        if shape is None:
            continue
        if shape.heads % tp:
            yield Finding(
                "refuse",
                "parallel.tp",
                f"{shape.heads} attention heads of the {key} do not divide by {tp} ranks",
                f"a tp that divides {shape.heads}",
            )
        elif shape.attention == "gqa" and shape.kv_heads % tp and tp % shape.kv_heads:
            yield Finding(
                "refuse",
                "parallel.tp",
                f"{shape.kv_heads} key-value heads of the {key} neither divide by {tp} ranks nor divide them",
            )


def pair(profile: Profile) -> Iterator[Finding]:
    """Does this drafter belong to this target? A wrong pair starts, and drafts noise."""
    target = profile.model.shape
    draft = profile.drafter.shape if profile.drafter else None
    if target is None or draft is None or profile.speculative.algorithm == "NONE":
        return
    fix = "use the drafter that was trained for this target"
    for what, ours, theirs in (
        ("hidden size", draft.hidden, target.hidden),
        ("vocabulary", draft.vocab, target.vocab),
    ):
        if ours != theirs:
            yield Finding("refuse", "drafter", f"its {what} is {ours}, the target's is {theirs}", fix)
    beyond = [layer for layer in draft.target_layer_ids or [] if layer >= target.layers]
    if beyond:
        yield Finding(
            "refuse", "drafter", f"it reads target layers {beyond}, and the target has {target.layers}", fix
        )
    if draft.mask_token_id is not None and draft.mask_token_id >= target.vocab:
        yield Finding(
            "refuse", "drafter", f"its mask token {draft.mask_token_id} is outside the vocabulary", fix
        )
    block = profile.speculative.block_size
    if draft.block_size is not None and draft.block_size != block:
        yield Finding(
            "refuse",
            "speculative.block_size",
            f"the drafter was trained for blocks of {draft.block_size}, not {block}",
            f"block_size: {draft.block_size}",
        )
