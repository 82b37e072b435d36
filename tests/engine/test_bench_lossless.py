"""From real servers to a verdict: plain decoding, DFLASH and DDTREE with the demo's pair, and a DDTREE that is wrong.

One server at a time, plain decoding last, because it also judges what the others said. Some five minutes of
processor time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.bench_run import cell, run
from support.ddtree import CHAIN, DDTREE, PLAIN, SWITCHES, environment, inside, install
from support.engine_pass import run_pass
from support.engine_server import EngineServer

from ddtool.bench import judge, lossless, results

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(2400)]

Json = dict[str, Any]
TOKENS = 12
WIDTH = 4  # requests at a time under load
STARTS = [
    "import ",
    "def main(",
    "class Reader:",
    "for name in ",
    "    if not ",
    "    return self.",
    "try:\n    ",
    "with open(",
]
MIDDLES = ["os", "re\n", "self, x", "path"]
PROMPTS = {
    f"{number:016x}": {"text": a + b} for number, (a, b) in enumerate((a, b) for a in STARTS for b in MIDDLES)
}
CELLS = [cell("code-c1", prompts=32), cell("code-c4", concurrency=WIDTH, prompts=32)]


def measure(server: EngineServer, arm: str, key: str, count: int, warm_up: int = 0) -> list[Json]:
    """The lines of one greedy pass of the first `count` prompts."""
    return run_pass(
        server,
        f"{arm}/{key}/v0/r0",
        [*PROMPTS][:count],
        PROMPTS,
        {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True},
        concurrency=1 if key == "code-c1" else WIDTH,
        warm_up=warm_up,
    )


@contextmanager
def broken(server: EngineServer, mutation: str) -> Iterator[None]:
    inside(server.sandbox, "touch", f"{SWITCHES}/{mutation}")
    yield
    inside(server.sandbox, "rm", f"{SWITCHES}/{mutation}")


def test_right_arms_are_lossless_and_a_wrong_one_is_not(serve, engine_host):
    install(engine_host)
    tree = serve(
        "demo",
        **DDTREE,
        max_running_requests=WIDTH,
        patience=4,
        enable_metrics=True,
        env=environment(probe=True),
    )
    lines = [*measure(tree, "tree:32", "code-c4", 32, warm_up=1), *measure(tree, "tree:32", "code-c1", 3)]
    with broken(tree, "causal-mask"):
        wrong = measure(tree, "tree:32", "code-c4", 8)
    refused, _ = tree.post("/generate", judge.question([575, 460]))
    tree.stop()

    chain = serve("demo", **CHAIN, max_running_requests=WIDTH, patience=4)
    lines += measure(chain, "chain", "code-c4", 32)
    chain.stop()

    plain = serve("demo", **PLAIN, max_running_requests=WIDTH, patience=4)
    reference = [*measure(plain, "plain", "code-c1", 32), *measure(plain, "plain", "code-c4", 32)]
    ask = judge.judge(plain.answer, PROMPTS)

    told = lossless.judged(run(*CELLS), [*reference, *lines], ask, "float32")
    assert {(one["arm"], one["cell"]): one["verdict"] for one in told} == {
        ("tree:32", "code-c1"): "too-few",
        ("plain", "code-c4"): "equal",
        ("chain", "code-c4"): "equal",
        ("tree:32", "code-c4"): "equal",
    }
    assert refused == 400, "DDTREE gives no log-probabilities, so it cannot be its own judge"

    (seen,) = [
        one
        for one in lossless.judged(run(*CELLS), [*reference, *wrong], ask, "float32")
        if one["arm"] != "plain"
    ]
    assert seen["verdict"] == "differs"
    assert any((one["gap"] or 0) > 100 * lossless.tie_width("float32") for one in seen["divergences"])

    summary = results.summarise(run(*CELLS), [*reference, *lines])
    arms = summary["cells"][1]["arms"]
    assert not [
        warning for warning in summary["warnings"] if "the engine counted" in warning or "chunk" in warning
    ]
    assert arms["plain"]["accept"] is None
    assert 1.2 < arms["chain"]["accept"]["mean"] < arms["tree:32"]["accept"]["mean"]
    (end,) = [line for line in lines if line["kind"] == "end" and line["pass"] == "tree:32/code-c4/v0/r0"]
    counted = {name: end["metrics"][f"sglang:ddtree_{name}_total"] for name in ("tokens", "verify")}
    assert arms["tree:32"]["accept"]["mean"] == pytest.approx(counted["tokens"] / counted["verify"], abs=1e-4)
    assert arms["tree:32"]["verify_steps"] == counted["verify"]
    reached = [end["metrics"].get(f'sglang:ddtree_accepted_total{{depth="{d}"}}', 0) for d in range(1, 8)]
    ours = arms["tree:32"]["accept"]["by_depth"]
    assert ours == pytest.approx([count / counted["verify"] for count in reached[: len(ours)]], abs=1e-4)
