"""A made-up `ddtool.tune/1`, by the machine of `made_up`."""

from __future__ import annotations

import math
import random
from statistics import median
from typing import Any

from support.made_up import ACCEPTED, ARMS, FINGERPRINT, MADE_UP, drafted_ms, near, round_ms, verify_ms

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
                "detail": "2.6% at worst, predicted against measured, over the 716 of 768 answers that are the "
                "traced texts (good up to 2%)",
            },
            {
                "name": "prediction",
                "ok": True,
                "detail": "2.8% of tok/s at worst, predicted against measured (good up to 10%): tree:16 at "
                "concurrency 16 is predicted +2.8%, and +1.9% with the rounds that it really took",
            },
        ],
    }


def verify_row(random_: random.Random, load: dict[str, Any], width: int) -> dict[str, Any]:
    tokens = width * load["concurrency"]
    cost = near(random_, verify_ms(tokens, load["context"]), 0.012)
    draft, tree, host = near(random_, 1.5), near(random_, 0.25 + 0.012 * width), near(random_, 0.9)
    return {
        **load,
        "width": width,
        "round_ms": round(cost + draft + tree + host, 4),
        "draft_ms": draft,
        "verify_ms": cost,
        "tree_ms": tree,
        "fitted_ms": round(0.995 * verify_ms(tokens, load["context"]) + 0.1, 4),
    }


def acceptance_row(random_: random.Random, arm: str) -> dict[str, Any]:
    """Budget 0 is the chain."""
    run, predicted = arm != "tree:8:4", near(random_, ACCEPTED[arm], 0.006)
    off = 0.0262 if arm == "tree:32" else 0.0043
    alike = {"off": off, "within": 0.02, "over": "alike", "alike": 179, "answers": 192}
    return {
        "budget": 0 if arm == "chain" else ARMS[arm] - 1,
        "topk": 0 if arm == "chain" else 4 if arm == "tree:8:4" else 8,
        "predicted": predicted,
        "measured": ACCEPTED[arm] if run else None,
        "error": 0.0131,
        "judged": alike if run else None,
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
    verify = verify_ms(ARMS[arm])
    if arm == "plain":
        return {"step": verify + parts["other"]}
    if arm == "chain":
        return {"draft, verify and host": verify + parts["draft"] + parts["other"]}
    return {
        "draft": parts["draft"],
        "grow": 0.65 * parts["tree"],
        "verify": verify,
        "choose": 0.1 * parts["tree"],
        "follow": 0.25 * parts["tree"],
        "host": parts["other"],
    }
