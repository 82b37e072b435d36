"""Checks against the machine and the release: graphs, memory, SGLang's flags, predicted speed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ddtool.profile import release_flags
from ddtool.profile.derived import captures
from ddtool.profile.findings import Finding
from ddtool.profile.memory import GIB, plan
from ddtool.profile.prediction import predict
from ddtool.profile.schema import Profile


def graphs(profile: Profile) -> Iterator[Finding]:
    for capture in captures(profile):
        if not capture.kept:
            yield Finding(
                "refuse",
                "graphs.bs",
                f"no batch size is left to capture for the {capture.width.worker}: sizes × "
                f"{capture.width.tokens} must divide by {capture.multiple.value} ({capture.multiple.reason})",
                "a width (budget + 1) that is a multiple of it",
            )
        elif 1 not in capture.kept and not profile.flag("disable-cuda-graph-padding"):
            yield Finding(
                "warn",
                "graphs.bs",
                f"a single request is padded to {capture.kept[0]} in the {capture.width.worker}'s graphs "
                f"({capture.kept[0] * capture.width.tokens} rows): {capture.multiple.reason}",
            )


def memory(profile: Profile) -> Iterator[Finding]:
    estimate = plan(profile)
    if estimate is None:
        return
    card = f"{estimate.card.memory_gib:g} GiB {estimate.card.name}"
    if estimate.kv_pool <= 0:
        yield Finding(
            "refuse",
            "parallel.tp",
            f"{estimate.weights:.1f} GiB of weights per rank leave nothing for KV at mem-fraction-static "
            f"{estimate.fraction:g} of a {card}",
            "more ranks, a smaller checkpoint, or a larger fraction",
        )
    elif estimate.pool_tokens < estimate.context:
        yield Finding(
            "refuse",
            "server_args.context-length",
            f"the KV pool holds {estimate.pool_tokens:,} tokens, under one request of {estimate.context:,}",
            "a shorter context, a larger mem-fraction-static, or kv-cache-dtype fp8_e4m3",
        )
    if estimate.outside_needed > estimate.outside:
        buffers = sum(item.total for item in estimate.buffers) / GIB
        yield Finding(
            "refuse",
            "graphs.max_bs" if buffers > estimate.activations else "server_args.mem-fraction-static",
            f"outside the fraction {estimate.outside:.1f} GiB are left of a {card}, and "
            f"{estimate.outside_needed:.1f} GiB are needed: triton's graph buffers {buffers:.1f}, "
            f"activations {estimate.activations:.1f}, drafter {estimate.draft_weights:.1f}",
            "a smaller graphs.max_bs or context-length, or a smaller mem-fraction-static",
        )


def flags(profile: Profile) -> Iterator[Finding]:
    release = profile.engine.release
    known = release_flags.load(release)
    if known is None:
        listed = ", ".join(release_flags.known_releases())
        yield Finding(
            "warn",
            "engine.release",
            f"the flags of {release} are unknown here, so none is checked ({listed} are)",
        )
        return
    for flag in profile.server_args:
        key, action = f"server_args.{flag}", known.flags.get(flag)
        if flag in known.unread:
            yield Finding(
                "warn",
                key,
                f"SGLang {release} defines this flag and never reads it",
                "remove it: it changes nothing",
            )
        elif action is None and profile.engine.provider == "builtin":
            yield Finding("warn", key, f"not a flag of SGLang {release}; right only if your fork defines it")
        elif action is None:
            yield Finding(
                "refuse", key, f"not a flag of SGLang {release}: it would end at start", _nearest(flag, known)
            )
        elif action not in ("store", "store_true"):
            yield Finding(
                "refuse",
                key,
                f"SGLang {release} does not take this flag in a config file ({action})",
                "remove it",
            )


def _nearest(flag: str, known: release_flags.ReleaseFlags) -> str:
    near = difflib.get_close_matches(flag, known.flags, 1)
    return f"did you mean {near[0]}?" if near else "remove it"


def expected_speed(profile: Profile) -> Iterator[Finding]:
    prediction = predict(profile)
    if prediction is None:
        return
    if prediction.tree is not None and prediction.break_even_ms is not None and prediction.tree_loses:
        yield Finding(
            "note",
            "speculative.budget",
            f"prediction: {_span(prediction.tree)} tok/s with the tree, {_span(prediction.chain)} with the "
            f"chain of the same drafter: the tree loses unless one verify takes less than "
            f"{_span(prediction.break_even_ms)} ms",
            "measure both before choosing a budget; k26-dflash is the chain",
        )
    objective = profile.objective
    if objective and objective.concurrency == 1 and prediction.own[1] < objective.tok_s:
        yield Finding(
            "note",
            "objective",
            f"prediction: {_span(prediction.own)} tok/s for one request, short of {objective.tok_s:g}",
        )


def _span(values: tuple[float, float]) -> str:
    return f"{values[0]:.0f} to {values[1]:.0f}"
