"""Writes the examples beside it: made-up numbers of a machine like eight GPUs with a large mixture of experts.

`result.json`, `tune.json` and `compare.json` have the schemas of `bench`, `tune` and `bench compare`; `ugly.json` has
what goes wrong at once. Nothing here was measured: a small model of a round and a fixed seed make all of it, so that
the numbers agree with each other. Run it again after a change: `python tests/data/bench/make.py`.
"""

from __future__ import annotations

import json
import math
import random
import zlib
from pathlib import Path
from statistics import median
from typing import Any

from ddtool.bench.compare import compare
from ddtool.bench.statistics import paired_ratio

HERE = Path(__file__).parent
MADE_UP = "example: every number here is made up by tests/data/bench/make.py; nothing was measured"
ARMS = {"plain": 1, "chain": 8, "tree:8:4": 9, "tree:12": 13, "tree:16": 17, "tree:32": 33}
ACCEPTED = {"plain": 1.0, "chain": 3.5, "tree:8:4": 3.62, "tree:12": 3.93, "tree:16": 4.12, "tree:32": 4.6}
WORKLOADS = {"code": 1.1, "chat": 0.86}
BLOCK, VISITS, REPEATS = 8, 2, 3


def flags_of(arm: str) -> dict[str, Any]:
    """What the server of an arm was started with."""
    chosen = {} if arm == "plain" else {"speculative-algorithm": "DFLASH" if arm == "chain" else "DDTREE"}
    if arm.startswith("tree"):
        chosen |= {
            "speculative-num-draft-tokens": ARMS[arm],
            "speculative-eagle-topk": 4 if arm.endswith(":4") else 8,
        }
    return {
        "model-path": "/models/k26-example",
        "tp-size": 8,
        "attention-backend": "flashinfer",
        "cuda-graph-max-bs": 64,
        "mem-fraction-static": 0.86,
        **chosen,
    }


FINGERPRINT = {
    "ddtool": "0.1.0",
    "commit": "afa5488c0ffee0000000000000000000000afa54",
    "agent": "9f3c51d2a7b0",
    "wheels": {"sglang": "0.5.12.post1 5b0c6e1f4a7d92c3", "torch": "2.9.1", "flashinfer-python": "0.5.3"},
    "patches": {},
    "engine": "9c1185a5c5e9fc54612808977ee8f548b2258d31",
    "releases": {arm: f"{zlib.crc32(arm.encode()):08x}{zlib.adler32(arm.encode()):08x}" for arm in ARMS},
    "flags": {arm: flags_of(arm) for arm in ARMS},
    "driver": "590.44.01",
    "card": "8 x NVIDIA H200",
    "host": "gpu-example",
    "kernel": "6.8.0-60-generic",
    "prompts": {"code": "4e07408562bedb8b", "chat": "60ce05c1decfe3ad"},
    "sampling": {"temperature": 0.0, "tokens": 512, "ignore_eos": True},
    "seed": 7,
}


def verify_ms(tokens: float, context: int = 1024) -> float:
    """Milliseconds to verify so many tokens at once: experts are read until all are touched, then it is compute."""
    return 17 + 9 * (1 - math.exp(-tokens / 40)) + 0.11 * tokens + 0.0002 * context


def drafted_ms(arm: str, concurrency: int) -> dict[str, float]:
    """The parts of a round beside verifying it."""
    if arm == "plain":
        return {"draft": 0.0, "tree": 0.0, "other": 0.9}
    tree = 0.0 if arm == "chain" else 0.25 + 0.012 * ARMS[arm]
    return {"draft": 1.4 + 0.012 * concurrency, "tree": tree, "other": 0.9 + 0.004 * concurrency}


def round_ms(arm: str, concurrency: int, context: int = 1024) -> float:
    return verify_ms(ARMS[arm] * concurrency, context) + sum(drafted_ms(arm, concurrency).values())


def near(random_: random.Random, value: float, relative: float = 0.01) -> float:
    return round(value * random_.gauss(1, relative), 4)


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
            "code-c64: tree:32: repeats of tok/s lie 14% apart: the machine was not quiet",
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


LOADS = {
    ("code", 1): 640,
    ("code", 16): 640,
    ("synthetic:8000:512", 1): 8256,
    ("synthetic:8000:512", 16): 8256,
}
"""Context by workload and requests at a time."""


def tune() -> dict[str, Any]:
    random_ = random.Random(11)
    loads = [{"workload": name, "concurrency": c, "context": context} for (name, c), context in LOADS.items()]
    return {
        "schema": "ddtool.tune/1",
        "run": "20261130-021500-77b0",
        "profile": "k26-example",
        "host": "gpu-example",
        "fingerprint": FINGERPRINT,
        "taints": [],
        "warnings": [MADE_UP],
        "verify": [
            verify_row(random_, load, width) for load in loads for width in (9, 13, 17, 25, 33, 49, 57, 65)
        ],
        "fit": {"model": "experts", "params": {"a": 16.91, "b": 0.1097, "c": 0.0238}, "rel_error": 0.0134},
        "acceptance": [acceptance_row(random_, arm) for arm in ARMS if arm != "plain"],
        "predicted": [row for load in loads for row in predicted_rows(load)],
        "measured": [row for load in loads[:2] for row in measured_rows(random_, load)],
        "experts": [experts_row(width) for width in (1, 9, 13, 17, 25, 33, 49, 57, 65)],
        "split": [
            {"arm": arm, "step": step, "ms": round(ms, 4)}
            for arm in ARMS
            for step, ms in split_of(arm).items()
        ],
        "recommendation": {
            "arm": "tree:12",
            "concurrency": 1,
            "why": "use the tree: budget 12, top-k 8 is measured +3.4% over the chain, ±1.2%",
            "overlay": "extends: k26-example\nspeculative:\n  algorithm: DDTREE\n  budget: 12\n  topk: 8\n",
            "gain_over_chain": 0.034,
        },
        "by_load": [
            {
                **loads[0],
                "arm": "tree:12",
                "why": "use the tree: budget 12, top-k 8 is measured +3.4% over the chain, ±1.2%",
                "best_tree": "tree:12",
            },
            {
                **loads[1],
                "arm": "chain",
                "why": "use the chain: no tree is faster here; the best, budget 8, top-k 8, is predicted -2.1% over "
                "the chain, ±1.4%",
                "best_tree": "tree:8",
            },
        ],
        "checks": [
            {
                "name": "fit",
                "ok": True,
                "detail": "1.3% of a round's time at widths left out (good up to 10%)",
            },
            {
                "name": "accept length",
                "ok": False,
                "detail": "2.6% at worst, predicted against measured (good up to 2%)",
            },
            {
                "name": "prediction",
                "ok": True,
                "detail": "2.8% of tok/s at worst, predicted against measured (good up to 10%)",
            },
        ],
    }


def verify_row(random_: random.Random, load: dict[str, Any], width: int) -> dict[str, Any]:
    tokens = width * load["concurrency"]
    cost = near(random_, verify_ms(tokens, load["context"]) + 1.5, 0.012)
    tree = near(random_, 0.25 + 0.012 * width)
    return {
        **load,
        "width": width,
        "round_ms": round(cost + tree, 4),
        "draft_ms": None,
        "verify_ms": cost,
        "tree_ms": tree,
        "fitted_ms": round(0.995 * verify_ms(tokens, load["context"]) + 1.6, 4),
    }


def acceptance_row(random_: random.Random, arm: str) -> dict[str, Any]:
    """Budget 0 is the chain."""
    return {
        "budget": 0 if arm == "chain" else ARMS[arm] - 1,
        "topk": 0 if arm == "chain" else 4 if arm == "tree:8:4" else 8,
        "predicted": near(random_, ACCEPTED[arm], 0.006),
        "measured": ACCEPTED[arm] if arm != "tree:8:4" else None,
        "error": 0.0131,
    }


def predicted_rows(load: dict[str, Any]) -> list[dict[str, Any]]:
    concurrency = load["concurrency"]
    chain = 0.993 * concurrency * ACCEPTED["chain"] / round_ms("chain", concurrency, load["context"]) * 1000
    return [
        {**load, "arm": "chain", "tok_s": round(chain, 2)},
        *(
            {**load, "arm": name, "tok_s": told(budget, topk, concurrency, load["context"])}
            for budget in (8, 12, 16, 20, 24, 32, 40, 48, 64)
            for topk, name in ((8, f"tree:{budget}"), (4, f"tree:{budget}:4"))
        ),
    ]


def told(budget: int, topk: int, concurrency: int, context: int) -> float:
    """What a tuner could say of a tree: tokens a round grow with the logarithm of its budget."""
    accepted = 3.62 + 0.55 * math.log2((budget + 1) / 9) - (0 if topk == 8 else 0.06 + 0.0025 * budget)
    rest = sum(drafted_ms("chain", concurrency).values()) + 0.25 + 0.012 * (budget + 1)
    return round(concurrency * accepted / (verify_ms((budget + 1) * concurrency, context) + rest) * 1000, 2)


def measured_rows(random_: random.Random, load: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for arm in ("chain", "tree:8:4", "tree:12", "tree:16", "tree:32"):
        exact = (
            load["concurrency"] * ACCEPTED[arm] / round_ms(arm, load["concurrency"], load["context"]) * 1000
        )
        values = [round(near(random_, exact, 0.008), 2) for _ in range(5)]
        rows.append({**load, "arm": arm, "tok_s": median(values), "values": values})
    return rows


def experts_row(width: int) -> dict[str, Any]:
    bound = 384 * (1 - (1 - 8 / 384) ** width)
    found = 384 * (1 - (1 - 8 / 384) ** (0.8 * width + 0.2))
    return {
        "width": width,
        "distinct": round(found, 1),
        "of": 384,
        "independent": round(bound, 1),
        "bound": False,
    }


def split_of(arm: str) -> dict[str, float]:
    """ms by step: what a server does not time itself is one piece."""
    parts = drafted_ms(arm, 1)
    rest = verify_ms(ARMS[arm]) + parts["draft"] + parts["other"]
    if arm == "plain":
        return {"step": rest}
    if arm == "chain":
        return {"draft, verify and host": rest}
    return {
        "draft, verify and host": rest,
        "build": 0.4 * parts["tree"],
        "mask": 0.25 * parts["tree"],
        "walk": 0.35 * parts["tree"],
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


def main() -> None:
    made = {"result": result(), "tune": tune(), "ugly": ugly(), "compare": compare(result(), other())}
    made["compare"]["warnings"].insert(0, MADE_UP)
    for name, value in made.items():
        (HERE / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
