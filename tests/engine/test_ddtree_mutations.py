"""The equality tests can fail: each way of getting a tree wrong changes what a server says, or the ledger sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.ddtree import DDTREE, PLAIN, SWITCHES, TRACE, drafts_after, environment, inside, install
from support.engine_server import EngineServer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

PROMPTS = ["for name in os.listdir(", "def main(argv):\n    parser = argparse."]
TOKENS = 24


@pytest.fixture(scope="module")
def expected(serve, engine_host) -> list[list[int]]:
    plain = serve("demo", **PLAIN)
    ids = [completion.ids for completion in plain.generate(PROMPTS, TOKENS)]
    plain.stop()
    return ids


@pytest.fixture(scope="module")
def server(serve, engine_host, expected) -> EngineServer:
    install(engine_host)
    trace = f"verify-trace:{TRACE},kv-ledger"
    return serve("demo", **DDTREE, disable_radix_cache=True, env=environment(probe=True, trace=trace))


@contextmanager
def broken(server: EngineServer, mutation: str) -> Iterator[None]:
    inside(server.sandbox, "touch", f"{SWITCHES}/{mutation}")
    yield
    inside(server.sandbox, "rm", f"{SWITCHES}/{mutation}")


def said(server: EngineServer) -> list[list[int]]:
    return [completion.ids for completion in server.generate(PROMPTS, TOKENS)]


@pytest.mark.parametrize("mutation", ["causal-mask", "sequential-positions"])
def test_a_wrong_tree_says_something_else(server, expected, mutation):
    with broken(server, mutation):
        assert said(server) != expected


def test_a_swapped_path_misleads_the_drafter(server, expected):
    """Attention does not care for the order of slots, so the text stays right; the drafter's positions do not."""
    with broken(server, "swapped-path"):
        drafted, fresh = drafts_after(server, expected[0], TOKENS)
    assert drafted != pytest.approx(fresh, abs=1e-3)


def test_without_a_mutation_the_same_server_is_exact(server, expected):
    assert said(server) == expected


def test_a_wrong_slot_freed_is_seen_by_the_ledger(server, expected):
    """Last: the ledger ends the server."""
    with broken(server, "wrong-slot-freed"), pytest.raises((AssertionError, OSError)):
        said(server)
    assert "holds a slot that is free" in server.log()
