"""Two results side by side: what differs between them, and by how much each arm of each common cell does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ddtool.bench.statistics import unpaired_ratio
from ddtool.errors import UsageError

Json = dict[str, Any]
SCHEMA = "ddtool.bench.compare/1"
SAME = (
    "card",
    "prompts",
    "sampling.ignore_eos",
)  # parts of a fingerprint without which a ratio says nothing about what was changed
LOAD = ("temperature", "prompts", "max_tokens")  # of a cell
READ = {
    "tok_s_user": ("tok_s_user", "median"),
    "ttft_ms": ("ttft_ms", "p50"),
    "tpot_ms": ("tpot_ms", "p50"),
    "accept": ("accept", "mean"),
    "round_ms": ("round_ms",),
}


def compare(a: Mapping[str, Any], b: Mapping[str, Any], *, force: bool = False) -> Json:
    """ddtool.bench.compare/1 of two ddtool.bench/1: every ratio is b over a.

    Raises UsageError where the two measured different things: cards, prompts, temperatures, lengths. With `force`
    that is a warning.
    """
    differs = [*differences(a.get("fingerprint") or {}, b.get("fingerprint") or {})]
    cells = {key: (one, _cells(b)[key]) for key, one in _cells(a).items() if key in _cells(b)}
    apart = [*_apart(differs, cells)]
    if apart and not force:
        raise UsageError(
            f"{a['run']} and {b['run']} measured different things: {'; '.join(apart)}",
            why="the ratio would be of these, not of what you changed",
            hint="--force shows it nevertheless, with a warning",
        )
    if not cells:
        raise UsageError(
            f"{a['run']} and {b['run']} have no cell in common",
            why=f"one has {', '.join(_cells(a)) or 'none'}, the other {', '.join(_cells(b)) or 'none'}",
            hint="ddtool bench list",
        )
    return {
        "schema": SCHEMA,
        "a": _who(a),
        "b": _who(b),
        "differs": differs,
        "taints": [f"{one['run']}: {taint}" for one in (a, b) for taint in one.get("taints") or ()],
        "warnings": [f"not comparable: {what}" for what in apart],
        "cells": [{"cell": one["cell"], "arms": _arms(one, other)} for one, other in cells.values()],
        "only_a": _only(a, b),
        "only_b": _only(b, a),
    }


def differences(a: Mapping[str, Any], b: Mapping[str, Any], above: str = "") -> Iterator[Json]:
    """Every leaf of two fingerprints that is not the same, its name dotted."""
    for name in [*a, *(name for name in b if name not in a)]:
        one, other = a.get(name), b.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differences(one, other, f"{above}{name}.")
        elif one != other:
            yield {"what": f"{above}{name}", "a": one, "b": other}


def arrow(difference: Json) -> str:
    """`driver: 560.35 → 570.12`"""
    return f"{difference['what']}: {difference['a']} → {difference['b']}"


def _apart(differs: list[Json], cells: Mapping[str, tuple[Json, Json]]) -> Iterator[str]:
    for one in differs:
        known = one["a"] is not None and one["b"] is not None
        if known and any(f"{one['what']}.".startswith(f"{part}.") for part in SAME):
            yield f"{one['what']} {one['a']} against {one['b']}"
    for key, (mine, other) in cells.items():
        for name in LOAD:
            if mine["cell"].get(name) != other["cell"].get(name):
                yield f"{name} of {key} {mine['cell'].get(name)} against {other['cell'].get(name)}"


def _arms(one: Json, other: Json) -> Json:
    return {
        arm: _arm(numbers, other["arms"][arm]) for arm, numbers in one["arms"].items() if arm in other["arms"]
    }


def _arm(a: Json, b: Json) -> Json:
    """tok/s with the ratio and its interval; of the rest both values."""
    values = [one["tok_s"]["values"] for one in (a, b)]
    known = all(values) and min(*values[0], *values[1]) > 0
    ratio = unpaired_ratio(values[1], values[0]).to_json() if known else {}
    return {
        "tok_s": {"a": a["tok_s"]["median"], "b": b["tok_s"]["median"], **ratio},
        **{name: {"a": _read(a, path), "b": _read(b, path)} for name, path in READ.items()},
    }


def _read(numbers: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        numbers = numbers.get(name) if isinstance(numbers, Mapping) else None
    return numbers


def _only(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """`cell/arm` that the other lacks."""
    there = _cells(other)
    return [
        f"{key}/{arm}"
        for key, cell in _cells(one).items()
        for arm in cell["arms"]
        if arm not in there.get(key, {"arms": {}})["arms"]
    ]


def _cells(result: Mapping[str, Any]) -> dict[str, Json]:
    return {cell["cell"]["key"]: cell for cell in result["cells"]}


def _who(result: Mapping[str, Any]) -> Json:
    return {name: result[name] for name in ("run", "profile", "host")}
