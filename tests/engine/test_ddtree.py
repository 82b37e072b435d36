"""DDTREE in real SGLang says what plain decoding says, whatever happens to its requests.

One server of each kind for the whole file; interpreted kernels make a round of four requests cost seconds.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from support.ddtree import (
    BUDGET,
    DDTREE,
    PLAIN,
    TOPK,
    TRACE,
    chain_accepts,
    drafts_after,
    environment,
    heaps_tree,
    inside,
    install,
    read_trace,
    tree_accepts,
    verified,
)
from support.engine_server import Completion, EngineServer

from ddtool.bench.tune import trace
from ddtool.bench.tune.trees import needs
from ddtool.engine.metrics import STEPS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

CONTEXT = 192
CHUNK = 64
TOKENS = 64
PROMPTS = [
    "for name in os.listdir(",
    "import os\n\ndef walk(path):\n    for ",
    "class Reader:\n    def __init__(self",
    "def main(argv):\n    parser = argparse.",
    "    try:\n        import ssl\n    except",
    "import re\nimport sys\n\n__all__ = [",
    "        if not isinstance(other, ",
    "    def test_close(self):\n        self.",
]
SHARED: dict[str, Any] = {"context_length": CONTEXT}


@dataclass(frozen=True)
class Arms:
    plain: EngineServer
    tree: EngineServer


@pytest.fixture(scope="module")
def arms(serve, engine_host) -> Arms:
    install(engine_host)
    limits = {"max_running_requests": 4, "chunked_prefill_size": CHUNK, "enable_metrics": True}
    env = environment(probe=True, trace=f"verify-trace:{TRACE},kv-ledger")
    with ThreadPoolExecutor() as pool:
        plain = pool.submit(serve, "demo", **PLAIN, **SHARED)
        tree = pool.submit(serve, "demo", **DDTREE, **SHARED, **limits, env=env)
        return Arms(plain.result(), tree.result())


@dataclass(frozen=True)
class Run:
    """The same prompts on both arms, more than run at a time, so that requests join and leave a running batch."""

    expected: list[Completion]
    found: list[Completion]
    rounds: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(arms) -> Run:
    expected = arms.plain.generate(PROMPTS, TOKENS)
    found = arms.tree.generate(PROMPTS, TOKENS)
    return Run(expected, found, read_trace(arms.tree))


def test_every_token_is_plain_decodings(run):
    assert [completion.ids for completion in run.found] == [completion.ids for completion in run.expected]
    assert all(len(completion.ids) == TOKENS for completion in run.found)


def test_rounds_accept_what_was_not_the_drafters_first_choice(run):
    branched = [record for rounds in run.rounds.values() for record in rounds if any(record["path_ranks"])]
    assert len(branched) >= 10


def test_every_round_accepts_what_the_heaps_tree_would(run):
    """Simulated offline from what the drafter said, along the target's own tokens; the chain likewise."""
    tokens = chain = 0
    for completion in run.found:
        done = 1  # prefill gives the first token
        for record in run.rounds[completion.meta["id"]]:
            truth = completion.ids[done:]
            # the last round may stop at the length before its path ends
            assert record["accepted"] == min(tree_accepts(record, truth), len(truth) - 1)
            assert verified(record) == heaps_tree(record)
            tokens, chain = tokens + record["accepted"] + 1, chain + chain_accepts(record, truth) + 1
            done += record["accepted"] + 1
        assert done == TOKENS
        assert len(run.rounds[completion.meta["id"]]) == completion.meta["spec_verify_ct"]
    assert tokens > 1.1 * chain, "a tree accepts more than its own first choices"


def test_a_trace_holds_its_text_and_tune_takes_from_it_what_the_server_took(run):
    lines = [json.dumps(record) for rounds in run.rounds.values() for record in rounds]
    texts = {text.ids: text for text in trace.read(lines)}
    for completion in run.found:
        text = texts[tuple(completion.ids)]
        rounds = run.rounds[completion.meta["id"]]
        for root, record in zip(text.drafts, rounds, strict=True):
            truth = text.ids[root + 1 :]
            taken = sum(need <= BUDGET for need in needs(text.drafts[root], truth, TOPK, BUDGET))
            assert record["accepted"] == min(taken, len(truth) - 1)


def test_a_tree_sees_each_node_as_plain_decoding_sees_its_prefix(arms, run):
    """Logits of every node equal those of a separate forward over its path: no sibling is seen, no position is off."""
    prompt = run.expected[0].ids[:40]
    inside(arms.tree.sandbox, "touch", "/run/ddtree/dump")
    arms.tree.generate([prompt], 3)
    seen = json.loads(inside(arms.tree.sandbox, "cat", "/run/ddtree/round.json"))
    paths: list[list[int]] = []
    for token, parent in zip(seen["tokens"], seen["parents"], strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    assert len(paths) == BUDGET + 1
    status, answers = arms.plain.post(
        "/generate",
        {
            "input_ids": [prompt + path for path in paths],
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "top_logprobs_num": 10,
        },
    )
    assert status == 200, answers
    for logprobs, answer in zip(seen["logprobs"], answers, strict=True):
        best = answer["meta_info"]["output_top_logprobs"][0]
        assert [logprobs[token] for _, token, _ in best] == pytest.approx(
            [value for value, _, _ in best], abs=2e-4
        )


def test_a_stop_inside_an_accepted_path_ends_the_text_there(arms, run):
    """On a token, and on a string; what lies behind it on the path is neither returned nor kept."""
    rid = run.found[0].meta["id"]
    ids, done = run.found[0].ids, 1
    for record in run.rounds[rid]:
        inner = ids[done : done + record["accepted"]]
        if len(inner) >= 2 and inner[0] not in ids[:done]:
            break
        done += record["accepted"] + 1
    else:
        pytest.fail("no round of this prompt accepts two tokens, the first of them new")
    _, piece = arms.plain.post("/detokenize", {"tokens": inner[:2]})
    for stop in ({"stop_token_ids": [inner[0]]}, {"stop": [piece["text"]]}):
        expected = arms.plain.generate(PROMPTS[:1], TOKENS, **stop)[0]
        found = arms.tree.generate(PROMPTS[:1], TOKENS, **stop)[0]
        assert (found.ids, found.text) == (expected.ids, expected.text)
        assert found.meta["finish_reason"] == expected.meta["finish_reason"]
        assert found.meta["finish_reason"]["type"] == "stop"
        assert found.meta["completion_tokens"] == expected.meta["completion_tokens"]


def test_what_a_tree_accepted_is_in_the_radix_cache(arms, run):
    """The cached tokens were committed from accepted paths; a wrong slot among them changes what follows."""
    texts = [PROMPTS[1] + run.expected[1].text[:60], PROMPTS[2] + run.expected[2].text[:60]]
    expected = arms.plain.generate(texts, 12)
    found = arms.tree.generate(texts, 12)
    assert [completion.ids for completion in found] == [completion.ids for completion in expected]
    assert all(completion.meta["cached_tokens"] > 16 for completion in found)


def test_a_prompt_in_chunks_runs_up_to_the_context_limit_inside_a_tree(arms, run):
    prompt = (run.expected[3].ids + run.expected[4].ids + run.expected[5].ids)[: CONTEXT - 24]
    assert len(prompt) > 2 * CHUNK
    expected = arms.plain.generate([prompt], CONTEXT - len(prompt))[0]
    found = arms.tree.generate([prompt], CONTEXT - len(prompt))[0]
    assert found.ids == expected.ids
    assert len(found.ids) >= 20
    assert found.meta["finish_reason"] == expected.meta["finish_reason"]


def test_greedy_requests_stay_exact_in_a_batch_that_samples(arms, run):
    """Three ways to say greedy go through the sampler when one request of the batch samples."""
    same = [{}, {"temperature": 0.7, "top_k": 1}, {"temperature": 1.0, "top_p": 1e-6}]
    bodies = [{"temperature": 0, **sampling} for sampling in same] + [{"temperature": 1.0}]
    status, answers = arms.tree.post(
        "/generate",
        {
            "text": [PROMPTS[0]] * len(bodies),
            "sampling_params": [{"max_new_tokens": 16, **body} for body in bodies],
        },
    )
    assert status == 200, answers
    assert [answer["output_ids"] for answer in answers[:3]] == [run.expected[0].ids[:16]] * 3
    assert answers[3]["meta_info"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"return_logprob": True}, "logprob"),
        ({"sampling_params": {"regex": "a+"}}, "grammar"),
        ({"sampling_params": {"frequency_penalty": 0.5}}, "penalties"),
        ({"sampling_params": {"min_new_tokens": 4}}, "min_new_tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(arms, extra, named):
    status, answer = arms.tree.post("/generate", {"text": PROMPTS[0], **extra})
    assert status == 400
    assert "DDTREE does not support" in str(answer)
    assert named in str(answer)


def test_an_aborted_request_disturbs_nobody_and_leaves_nothing(arms, run):
    aborted: list[Any] = []
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        body = {
            "text": PROMPTS[6],
            "rid": "to-abort",
            "sampling_params": {"temperature": 0, "max_new_tokens": 120},
        }
        aborted.append(arms.tree.post("/generate", body))

    def abort() -> None:
        asked.wait()
        threading.Event().wait(4)
        arms.tree.post("/abort_request", {"rid": "to-abort"})

    threads = [threading.Thread(target=work) for work in (ask, abort)]
    for thread in threads:
        thread.start()
    found = arms.tree.generate(PROMPTS[7:], 24)
    for thread in threads:
        thread.join()
    assert found[0].ids == run.expected[7].ids[:24]
    (_, answer), *_ = aborted
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    assert answer["meta_info"]["completion_tokens"] < 120


def test_accepted_paths_leave_the_drafter_what_a_prefill_would(arms, run):
    """Empties the radix cache on the way."""
    drafted, fresh = drafts_after(arms.tree, run.expected[0].ids[:40], 24)
    assert drafted == pytest.approx(fresh, abs=1e-3)


def test_metrics_stand_beside_sglangs_own(arms, run):
    status, body = arms.tree.get("/metrics")
    assert status == 200
    totals: dict[str, float] = {}
    for line in body.decode().splitlines():
        if line.startswith("sglang:ddtree_"):
            name, value = line.rsplit(" ", 1)
            totals[name.partition("{")[0]] = totals.get(name.partition("{")[0], 0) + float(value)
    rounds = sum(len(records) for records in read_trace(arms.tree).values())
    assert totals["sglang:ddtree_verify_total"] == rounds
    assert totals["sglang:ddtree_tokens_total"] == rounds + totals["sglang:ddtree_accepted_total"]
    counts = {
        line.partition('step="')[2].partition('"')[0]: float(line.rsplit(" ", 1)[1])
        for line in body.decode().splitlines()
        if line.startswith("sglang:ddtree_seconds_count")
    }
    assert sorted(counts) == sorted(STEPS)
    assert len(set(counts.values())) == 1 and counts["draft"] > 0, "each round has every step once"


def test_the_pool_is_as_it_was_at_the_start(arms, run):
    """After hundreds of rounds, with the radix cache emptied. SGLang also checks for leaks whenever it is idle."""
    status, _ = arms.tree.post("/flush_cache", {})
    assert status == 200
    status, answer = arms.tree.get("/v1/loads?include=core")
    assert (status, json.loads(answer)["loads"][0]["num_used_tokens"]) == (200, 0)
    log = arms.tree.log()
    assert "leak" not in log
    assert "StandInCalled" not in log
    assert "DDTREE ready" in log
    assert "draft width 8, verify width 33 (budget 32), top-k 8, depth 7" in log
