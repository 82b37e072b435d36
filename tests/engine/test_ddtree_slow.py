"""What needs more processes or servers than the quick run has time for: more ranks, and the chain beside the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.ddtree import CHAIN, DDTREE, PLAIN, environment, inside, install

from ddtool.sandbox.image import VENV

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600)]

PAIR = "/run/random-pair"

PROMPTS = ["for name in os.listdir(", "class Reader:\n    def __init__(self"]


def test_two_ranks(serve, engine_host):
    """Greedy equals plain decoding; sampled, the ranks stay together, which rank-sync proves round by round."""
    install(engine_host)
    plain = serve("demo", **PLAIN)
    expected = [completion.ids for completion in plain.generate(PROMPTS, 12)]
    plain.stop()
    env = {**environment(trace="rank-sync,kv-ledger"), "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    server = serve("demo", **DDTREE, tp_size=2, env=env)
    assert [completion.ids for completion in server.generate(PROMPTS, 12)] == expected
    sampled = server.generate(PROMPTS, 8, temperature=1.0, top_p=0.95)
    assert all(len(completion.ids) == 8 for completion in sampled)
    assert "rank-sync" not in server.log()


def test_eight_ranks(serve, engine_host):
    """A random pair of 8 heads, so that no draft is ever right and every round has all ranks agree on a whole tree."""
    install(engine_host)
    program = (Path(__file__).parents[1] / "support" / "random_pair.py").read_text()
    inside(engine_host, f"{VENV}/bin/python", "-", PAIR, input=program)
    pair = {"model_path": f"{PAIR}/target", "context_length": 256}
    plain = serve("demo", **PLAIN, **pair)
    expected = plain.generate(PROMPTS[:1], 4)[0].ids
    plain.stop()
    env = {**environment(trace="rank-sync,kv-ledger"), "SGLANG_CPU_OMP_THREADS_BIND": "|".join("01" * 4)}
    drafter = {"speculative_draft_model_path": f"{PAIR}/draft"}
    server = serve("demo", **DDTREE, **pair, **drafter, tp_size=8, env=env, patience=6)
    assert server.generate(PROMPTS[:1], 4)[0].ids == expected
    assert "rank-sync" not in server.log()


def test_a_drafter_that_sees_the_last_positions_only(serve, engine_host):
    """Its rows name the slots of a window that moves; the text is plain decoding's, and drafts are still accepted."""
    install(engine_host)
    plain = serve("demo", **PLAIN)
    expected = [completion.ids for completion in plain.generate(PROMPTS, 48)]
    plain.stop()
    server = serve("demo", **DDTREE, speculative_draft_window_size=24, env=environment(trace="kv-ledger"))
    found = server.generate(PROMPTS, 48)
    assert [completion.ids for completion in found] == expected
    assert all(completion.accept_length > 1.5 for completion in found)


def test_a_tree_takes_more_than_the_chain(serve, engine_host):
    """The same drafter, the same prompts, a server each: DFLASH's accept length against DDTREE's."""
    install(engine_host)
    chain, tree = serve("demo", **CHAIN), serve("demo", **DDTREE, env=environment())
    lengths = []
    for server in (chain, tree):
        found = server.generate(PROMPTS, 64)
        rounds = sum(completion.meta["spec_verify_ct"] for completion in found)
        lengths.append(sum(completion.meta["completion_tokens"] for completion in found) / rounds)
        server.stop()
    assert lengths[1] > 1.1 * lengths[0]
