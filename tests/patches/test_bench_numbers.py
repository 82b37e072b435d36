"""Our latencies are those of SGLang's own benchmark: its functions, out of its wheel, are fed the same answers."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
import traceback
import types
import typing
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bench_run import one_pass

from ddtool.bench import metrics, records

pytestmark = pytest.mark.patches

RELEASE = "0.5.12.post1"
PARTS = (
    "BenchmarkMetrics",
    "RequestFuncInput",
    "RequestFuncOutput",
    "async_request_sglang_generate",
    "calculate_metrics",
)
Chunks = list[tuple[float, int]]


class Clock:
    """`time` for SGLang's client: it stands where the fake server put it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Answer:
    """Stands for aiohttp's session, its post and its response at once: an event for each chunk, then [DONE]."""

    status = 200

    def __init__(self, clock: Clock, chunks: Chunks, end_s: float) -> None:
        self.clock, self.chunks, self.end_s = clock, chunks, end_s

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def post(self, **_: object) -> Answer:
        return self

    @property
    async def content(self) -> Any:
        for at, tokens in self.chunks:
            self.clock.now = at
            yield f"data: {json.dumps({'text': 'x', 'meta_info': {'completion_tokens': tokens}})}\n".encode()
        self.clock.now = self.end_s
        yield b"data: [DONE]\n"


@pytest.fixture(scope="module")
def theirs(wheel: Callable[[str], Path]) -> types.SimpleNamespace:
    """The parts of `sglang/bench_serving.py` that measure, without what the module imports around them."""
    with zipfile.ZipFile(wheel(RELEASE)) as archive:
        tree = ast.parse(archive.read("sglang/bench_serving.py"))
    wanted = [node for node in tree.body if getattr(node, "name", None) in PARTS]
    assert {node.name for node in wanted} == {*PARTS}
    names = {
        name: getattr(typing, name)
        for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union", "Callable")
    }
    anything = types.SimpleNamespace
    clock = Clock()
    flags = anything(
        disable_ignore_eos=False, disable_stream=False, return_logprob=False, return_routed_experts=False,
        logprob_start_len=-1, top_logprobs_num=0, token_ids_logprob=None,
    )  # fmt: skip
    space: dict[str, Any] = {
        **names, "dataclass": dataclass, "field": field, "np": numpy, "time": clock, "json": json, "sys": sys,
        "traceback": traceback, "warnings": warnings, "TERM_PLOTLIB_AVAILABLE": False, "args": flags, "tqdm": object,
        "DatasetRow": object, "PreTrainedTokenizerBase": object, "get_request_headers": dict, "_ROUTING_KEY_HEADER": "",
        "remove_prefix": lambda text, prefix: text[len(prefix) :] if text.startswith(prefix) else text,
    }  # fmt: skip
    exec(compile(ast.Module(wanted, []), "bench_serving.py", "exec"), space)
    return anything(space=space, clock=clock)


def measured_by_sglang(
    theirs: types.SimpleNamespace, answers: list[tuple[Chunks, float]], seconds: float
) -> Any:
    outputs = []
    for chunks, end_s in answers:
        theirs.clock.now = 0.0
        theirs.space["_create_bench_client_session"] = lambda c=chunks, e=end_s: Answer(theirs.clock, c, e)
        asked = theirs.space["RequestFuncInput"]("p", "u", 1, chunks[-1][1], "m", "", None, {})
        outputs.append(asyncio.run(theirs.space["async_request_sglang_generate"](asked)))
    assert all(output.success for output in outputs), outputs
    tokenizer = types.SimpleNamespace(encode=lambda text, **_: [])
    return theirs.space["calculate_metrics"](None, outputs, seconds, tokenizer, "sglang")[0]


def measured_by_us(
    answers: list[tuple[Chunks, float]], seconds: float
) -> tuple[metrics.Measured, dict[str, Any]]:
    samples = [
        {
            "prompt": "p",
            "sent_s": 0.0,
            "chunks": chunks,
            "e2e_s": end_s,
            "completion_tokens": chunks[-1][1],
            "verify_ct": None,
            "finish": "length",
            "status": 200,
            "error": None,
        }
        for chunks, end_s in answers
    ]
    (one,) = records.read(one_pass("plain/code-c1/v0/r0", samples, seconds=seconds)).passes
    measured = metrics.measure(one)
    return measured, metrics.latencies([measured])


@st.composite
def an_answer(draw: st.DrawFn) -> tuple[Chunks, float]:
    gaps = draw(st.lists(st.tuples(st.floats(0.001, 2), st.integers(0, 8)), min_size=1, max_size=12))
    chunks: Chunks = []
    at, tokens = 0.0, 0
    for gap, more in gaps:
        at, tokens = at + gap, tokens + more + (not tokens)
        chunks.append((at, tokens))
    return chunks, at + draw(st.floats(0, 0.1))


@settings(max_examples=60, deadline=None)
@given(answers=st.lists(an_answer(), min_size=1, max_size=8), seconds=st.floats(1, 60))
def test_the_same_answers_have_the_same_latencies(theirs, answers, seconds):
    reference = measured_by_sglang(theirs, answers, seconds)
    measured, ours = measured_by_us(answers, seconds)
    same = {
        ("ttft_ms", "p50"): reference.median_ttft_ms,
        ("ttft_ms", "p99"): reference.p99_ttft_ms,
        ("itl_ms", "p50"): reference.median_itl_ms,
        ("itl_ms", "p95"): reference.p95_itl_ms,
        ("itl_ms", "p99"): reference.p99_itl_ms,
        ("tpot_ms", "p50"): reference.median_tpot_ms,
        ("tpot_ms", "p99"): reference.p99_tpot_ms,
        ("e2e_ms", "p50"): reference.median_e2e_latency_ms,
        ("e2e_ms", "p99"): reference.p99_e2e_latency_ms,
    }
    for (name, percentile), value in same.items():
        assert (ours[name][percentile] or 0) == pytest.approx(value, abs=1e-3), name
    assert measured.tok_s == pytest.approx(reference.output_throughput)
