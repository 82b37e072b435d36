"""`tune` on real SGLang: one server that keeps no drafted token says how many rounds every other arm takes."""

from __future__ import annotations

from typing import Any

import pytest
from support.ddtree import CHAIN, DDTREE, TRACE, environment, inside, install

from ddtool.bench.tune import trace, trees
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.trees import Shape

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600)]

TOKENS = 48
PROMPTS = [
    "for name in os.listdir(",
    "import os\n\ndef walk(path):\n    for ",
    "class Reader:\n    def __init__(self",
    "def main(argv):\n    parser = argparse.",
]
SHARED: dict[str, Any] = {"context_length": 192, "max_running_requests": 4}
DENSE = f"verify-trace:{TRACE},every-token"


def traced(server: Any) -> list[trace.Text]:
    return trace.read(inside(server.sandbox, "cat", TRACE).splitlines())


@pytest.fixture(scope="module")
def dense(serve, engine_host):
    install(engine_host)
    return serve("demo", **{**DDTREE, "speculative_ddtree_budget": 7}, **SHARED, env=environment(trace=DENSE))


def test_greedy_every_arm_takes_the_rounds_that_the_trace_told(dense, serve):
    said = dense.generate(PROMPTS, TOKENS)
    assert [completion.meta["spec_verify_ct"] for completion in said] == [TOKENS - 1] * len(PROMPTS)
    told = Acceptance(traced(dense), 64)
    assert told.is_exact
    assert {text.ids for text in told.texts} == {tuple(completion.ids) for completion in said}
    order = [[text.ids for text in told.texts].index(tuple(completion.ids)) for completion in said]
    for shape, flags in (
        (trees.CHAIN, CHAIN),
        (Shape(32, 8), DDTREE),
        (Shape(12, 4), {**DDTREE, "speculative_ddtree_budget": 12, "speculative_ddtree_topk": 4}),
    ):
        server = serve("demo", **flags, **SHARED, env=environment())
        found = server.generate(PROMPTS, TOKENS)
        server.stop()
        assert [completion.ids for completion in found] == [completion.ids for completion in said]
        rounds = [completion.meta["spec_verify_ct"] for completion in found]
        assert rounds == [told.rounds(shape)[index] for index in order], shape


def test_sampled_text_is_traced_at_every_token_too(dense):
    before = len(traced(dense))
    said = dense.generate(PROMPTS, TOKENS, temperature=1)
    texts = traced(dense)[before:]
    assert {text.ids for text in texts} == {tuple(completion.ids) for completion in said}
    assert all(text.is_dense for text in texts)
