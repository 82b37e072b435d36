"""A machine that is made up: like eight GPUs with a large mixture of experts. Nothing here was measured.

A small model of a round makes every number of `bench_examples` and `tune_examples`, so that they agree with each other.
"""

from __future__ import annotations

import math
import random
import zlib
from typing import Any

MADE_UP = "example: every number here is made up by tests/support/made_up.py; nothing was measured"
ARMS = {"plain": 1, "chain": 8, "tree:8:4": 9, "tree:12": 13, "tree:16": 17, "tree:32": 33}
ACCEPTED = {"plain": 1.0, "chain": 3.5, "tree:8:4": 3.62, "tree:12": 3.93, "tree:16": 4.12, "tree:32": 4.6}


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
