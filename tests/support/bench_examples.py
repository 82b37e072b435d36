"""Made-up results for tests of reports, by the machine of `made_up`, each as `--json` would print it.

`result`, `tune` and `compare` have the schemas of `bench`, `tune` and `bench compare`; `ugly` has what goes wrong at
once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from statistics import median
from typing import Any

from support.made_up import ACCEPTED, ARMS, FINGERPRINT, MADE_UP, near, round_ms
from support.tune_examples import tune

from ddtool.bench.compare import compare
from ddtool.bench.statistics import paired_ratio

WORKLOADS = {"code": 1.1, "chat": 0.86}
BLOCK, VISITS, REPEATS = 8, 2, 3


def example(name: str) -> dict[str, Any]:
    """A fresh copy of result, tune, compare or ugly."""
    found: dict[str, Any] = json.loads(_written(name))
    return found


@cache
def _written(name: str) -> str:
    make = {"result": result, "tune": tune, "compare": compared, "ugly": ugly}
    return json.dumps(make[name]())


def compared() -> dict[str, Any]:
    made = compare(result(), other())
    return {**made, "warnings": [MADE_UP, *made["warnings"]]}


def numbers(value: Any) -> Iterator[float]:
    """Every number in it, and every key that is one."""
    if isinstance(value, dict):
        for below in value.values():
            yield from numbers(below)
    elif isinstance(value, list):
        for below in value:
            yield from numbers(below)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def histogram(mean: float, steps: int) -> dict[str, int]:
    """Rounds by the tokens they gave, 1 to BLOCK, with about this mean."""
    low, high = 0.0, 1.0
    for _ in range(60):
        keep = (low + high) / 2
        low, high = (keep, high) if sum(keep**depth for depth in range(BLOCK)) < mean else (low, keep)
    shares = [keep**depth * ((1 - keep) if depth < BLOCK - 1 else 1) for depth in range(BLOCK)]
    return {
        str(length + 1): round(share * steps) for length, share in enumerate(shares) if share * steps >= 0.5
    }


def acceptance(arm: str, workload: str, tokens: int) -> dict[str, Any] | None:
    if arm == "plain":
        return None
    counts = histogram(
        min(ACCEPTED[arm] * WORKLOADS[workload], 7.2), round(tokens / ACCEPTED[arm] / WORKLOADS[workload])
    )
    steps = sum(counts.values())
    reached = [sum(n for length, n in counts.items() if int(length) > depth) for depth in range(1, BLOCK)]
    return {
        "mean": round(sum(int(length) * n for length, n in counts.items()) / steps, 4),
        "histogram": counts,
        "by_depth": [round(n / steps, 4) for n in reached],
    }


def spread_of(random_: random.Random, p50: float, tail: float) -> dict[str, float]:
    p50 = near(random_, p50)
    return {"p50": p50, "p95": round(p50 * tail, 3), "p99": round(p50 * tail * 1.3, 3)}


def arm_of(random_: random.Random, arm: str, workload: str, concurrency: int) -> dict[str, Any]:
    tokens = 512 * 32 * max(1, concurrency // 8)
    accept = acceptance(arm, workload, tokens)
    length = accept["mean"] if accept else 1.0
    turn = round_ms(arm, concurrency)
    values = [near(random_, concurrency * length / turn * 1000, 0.008) for _ in range(VISITS * REPEATS)]
    per_user = [round(value / concurrency * 1.02, 4) for value in values]
    prefill = 95 + 14 * concurrency
    return {
        "passes": len(values),
        "requests": len(values) * max(32, 2 * concurrency),
        "tok_s": {"median": round(median(values), 4), "values": values},
        "tok_s_user": {"median": round(median(per_user), 4), "values": per_user},
        "ttft_ms": spread_of(random_, prefill, 1.7),
        "itl_ms": spread_of(random_, turn / length, 2.4 if accept else 1.2),
        "tpot_ms": spread_of(random_, turn / length, 1.25),
        "e2e_ms": spread_of(random_, prefill + 511 * turn / length, 1.3),
        "accept": accept,
        "round_ms": near(random_, turn, 0.004),
        "verify_steps": sum(accept["histogram"].values()) if accept else None,
        "errors": 0,
        "goodput": near(random_, concurrency * length / turn * 1000 / 512 * 0.97),
        "gpu": {"memory_mib": 128_431 + 37 * concurrency, "power_w": round(380 + 3.1 * concurrency, 1)},
        "stable": True,
        "spread": round((max(values) - min(values)) / median(values), 4),
    }


def cell_of(random_: random.Random, workload: str, concurrency: int) -> dict[str, Any]:
    arms = {arm: arm_of(random_, arm, workload, concurrency) for arm in ARMS}
    return {
        "cell": {
            "key": f"{workload}-c{concurrency}",
            "workload": workload,
            "concurrency": concurrency,
            "rate": None,
            "temperature": 0.0,
            "prompts": 32,
            "max_tokens": 512,
        },
        "arms": arms,
        "ratios": [ratio(arm, arms[arm], arms["chain"]) for arm in ARMS if arm != "chain"],
    }


def ratio(arm: str, ours: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    starts = [visit for visit in range(VISITS) for _ in range(REPEATS)]
    found = paired_ratio(ours["tok_s"]["values"], base["tok_s"]["values"], starts)
    return {"arm": arm, "base": "chain", "metric": "tok_s", **found.to_json()}


def lossless_of(arm: str, equal: int | None, verdict: str, words: str, **more: Any) -> dict[str, Any]:
    cell = "chat-c1-t1" if equal is None else "code-c1"
    entry = {"arm": arm, "cell": cell, "divergences": [], "distribution": None, "samples": 32, "equal": equal}
    return {**entry, "verdict": verdict, "words": words, **more}


def lossless() -> list[dict[str, Any]]:
    tie = {"index": 17, "position": 203, "expected": 1126, "found": 279, "gap": 0.0078, "near_tie": True}
    drawn = {
        "prompts": 8,
        "tokens": 16,
        "statistic": 121.4,
        "p": 0.37,
        "alpha": 0.01,
        "sees": 0.12,
        "samples": 640,
    }
    counted = "outputs are plain decoding's, token for token"
    return [
        lossless_of("chain", 32, "equal", f"32 of 32 {counted}"),
        lossless_of(
            "tree:16",
            31,
            "near-ties",
            f"31 of 32 {counted}; the others begin to differ at near ties (gaps to 0.008 of 0.125)",
            divergences=[tie],
        ),
        lossless_of(
            "tree:16", None, "equal", "its tokens could be plain decoding's", distribution=drawn, samples=640
        ),
    ]


def result() -> dict[str, Any]:
    random_ = random.Random(7)
    cells = [cell_of(random_, workload, c) for workload in WORKLOADS for c in (1, 4, 16, 64)]
    shaky = cells[3]["arms"]["tree:32"]
    shaky.update(stable=False, spread=0.1404, errors=2)
    return {
        "schema": "ddtool.bench/1",
        "run": "20261130-014212-3fa9",
        "profile": "k26-example",
        "host": "gpu-example",
        "fingerprint": FINGERPRINT,
        "slo": {"ttft": 2000, "tpot": 50},
        "taints": ["other processes used the GPU meanwhile: python (pid 41211)"],
        "warnings": [
            MADE_UP,
            "code-c64: repeats of tok/s lie far apart, 14% in tree:32: the machine was not quiet",
        ],
        "cells": cells,
        "lossless": lossless(),
        "objective": {
            "tok_s": 150,
            "concurrency": 1,
            "arm": "tree:16",
            "cell": "code-c1",
            "measured": cells[0]["arms"]["tree:16"]["tok_s"]["median"],
            "met": True,
        },
    }


def other() -> dict[str, Any]:
    """The same bench with another release of the engine, which verifies a little faster."""
    made = result()
    random_ = random.Random(13)
    for cell in made["cells"]:
        for arm in cell["arms"].values():
            arm["tok_s"]["values"] = [near(random_, 1.024 * value, 0.004) for value in arm["tok_s"]["values"]]
            arm["tok_s"]["median"] = round(median(arm["tok_s"]["values"]), 4)
            arm["round_ms"] = round(arm["round_ms"] / 1.024, 4)
    fingerprint = {**FINGERPRINT, "engine": "1f0e9c1185a5c5e9fc54612808977ee8f548b225", "driver": "590.48.02"}
    return {**made, "run": "20261130-031500-0b1e", "fingerprint": fingerprint, "taints": []}


def ugly() -> dict[str, Any]:
    """A run in which much went wrong, with names by somebody who means ill."""
    random_ = random.Random(3)
    nothing = dict.fromkeys(("p50", "p95", "p99"))
    failed = {
        "passes": 0,
        "tok_s": {"median": None, "values": []},
        "tok_s_user": {"median": None, "values": []},
        "ttft_ms": nothing,
        "itl_ms": nothing,
        "tpot_ms": nothing,
        "e2e_ms": nothing,
        "accept": None,
        "round_ms": None,
        "verify_steps": None,
        "errors": 128,
        "goodput": None,
        "gpu": None,
        "stable": False,
        "spread": None,
    }
    cells = []
    for number in range(40):
        cell = cell_of(random_, "code", 1)
        name = f"a-prompt-set-of-our-own-with-a-rather-long-name-{number % 4}"
        cell["cell"].update(
            key=f"{name}-r{number + 0.5}-t1",
            workload=name,
            concurrency=None,
            rate=number + 0.5,
            temperature=1.0,
        )
        arms = cell["arms"]
        cell["arms"] = {
            "chain": arms["chain"],
            "tree:32": failed,
            "<script>alert('arm')</script>": {
                **arms["tree:16"],
                "accept": None,
                "ttft_ms": None,
                "gpu": None,
            },
            "[red]an arm\x1b[31m whose name goes on and on, by an operator who likes to write[/red]": arms[
                "tree:12"
            ],
        }
        cell["ratios"] = [row for row in cell["ratios"] if row["arm"] == "tree:32"] if number == 0 else []
        cells.append(cell)
    cells[1]["arms"] = {}
    cells[2]["arms"]["chain"]["tok_s"]["median"] = 12_345_678.9
    return {
        "schema": "ddtool.bench/1",
        "run": "20261130-014212-dead",
        "profile": "<img src=x onerror=alert(1)>",
        "host": "</title><script>alert('host')</script>\x1b]0;owned\x07",
        "fingerprint": {"commit": None, "wheels": {}, "flags": ["--tp", "8", "</td>"], "prompts": "ü" * 300},
        "taints": [
            "tree:32: \x1b[2Jeager mode " + "very " * 60 + "slow",
            "<b>live diagnostics</b>: graph-copy",
        ],
        "warnings": ["w" * 500],
        "cells": cells,
        "lossless": [
            {
                "arm": "tree:32",
                "cell": "code",
                "samples": 0,
                "equal": 0,
                "divergences": [],
                "distribution": None,
                "verdict": "differs",
            }
        ],
        "objective": {"tok_s": 150, "concurrency": 1, "measured": None, "met": False},
    }
