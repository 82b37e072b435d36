"""What needs more processes or servers than the quick run has time for: two ranks, and the chain beside the tree."""

from __future__ import annotations

import pytest
from support.ddtree import CHAIN, DDTREE, PLAIN, environment, install

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800)]

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
