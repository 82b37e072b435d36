"""Runs of a benchmark as their files say them: run.json and the lines of samples.jsonl, for tests of the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import HealthCheck, settings

from ddtool.bench import asked, passes
from ddtool.bench.workloads import Workload
from ddtool.profile import Profile

Json = dict[str, Any]
unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # on a machine that others use


def designed(
    profile: Profile | None, arms: Sequence[str], **changed: Any
) -> tuple[passes.Design, dict[str, Workload]]:
    """asked.design() of the workload `code`, short but for what is changed."""
    short = {"concurrency": "1,4", "rate": None, "tokens": 12, "repeats": 2, "visits": 2, "temperature": None}
    return asked.design(profile, arms, ["code"], **{**short, **changed})


def cell(key: str = "code-c1", **changes: Any) -> Json:
    fields = {
        "workload": "code",
        "concurrency": 1,
        "rate": None,
        "temperature": 0.0,
        "prompts": 1,
        "max_tokens": 8,
    }
    return {"key": key, **fields, **changes}


def run(*cells: Json, arms: Sequence[str] = ("plain", "chain", "tree:32"), **changes: Any) -> Json:
    plan = {"arms": [*arms], "cells": [*(cells or (cell(),))], "visits": 1, "repeats": 1}
    return {
        "run": "20261130-014212-3fa9",
        "profile": "p",
        "host": "h",
        "plan": plan,
        "fingerprint": {},
        **changes,
    }


def sample(gains: Iterable[int] = (1, 1, 1), step_s: float = 0.1, **changes: Any) -> Json:
    """An answer whose first token comes after `step_s`, and then a chunk of so many tokens every `step_s`.

    The rounds are verify rounds; `verify_ct=None` makes them plain decoding.
    """
    chunks, tokens = [[step_s, 1]], 1
    for number, gain in enumerate(gains):
        tokens += gain
        chunks.append([round(step_s * (number + 2), 6), tokens])
    fields: Json = {
        "prompt": "00f1e2d3c4b5a697",
        "sent_s": 0.0,
        "chunks": chunks,
        "e2e_s": chunks[-1][0],
        "completion_tokens": tokens,
        "verify_ct": len(chunks) - 1,
        "finish": "length",
        "status": 200,
        "error": None,
    }
    return {**fields, **changes}


def one_pass(
    name: str,
    samples: Sequence[Json],
    *,
    attempt: int = 1,
    seconds: float = 1.0,
    unix: float = 0.0,
    **end: Any,
) -> list[Json]:
    """The lines of one ended attempt."""
    head = {"pass": name, "attempt": attempt}
    lines: list[Json] = [{"kind": "begin", **head, "unix": unix}]
    lines += [{"kind": "sample", **head, "index": index, **one} for index, one in enumerate(samples)]
    return [*lines, {"kind": "end", **head, "seconds": seconds, "gpu": None, "metrics": None, **end}]


def speeds(arm: str, values: Sequence[float], key: str = "code-c1", visit: int = 0) -> list[Json]:
    """A pass for each tok/s of `values`, one repeat after the other."""
    lines = []
    for repeat, tok_s in enumerate(values):
        name = f"{arm}/{key}/v{visit}/r{repeat}"
        lines += one_pass(name, [sample([2, 2, 3])], seconds=8 / tok_s, unix=100 * visit + repeat)
    return lines
