"""What the numbers of an error are, with a profile and without one."""

from __future__ import annotations

import io
import json

import pytest
from support import crashlog

from ddtool.crash import numbers
from ddtool.crash.classify import Context, classify
from ddtool.crash.numbers import Numbers
from ddtool.profile import load

SHAPES = "RuntimeError: The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension 0"


def crash(a: int, b: int, frame: str, code: str, context: int | None = None) -> bytes:
    body = [
        "[2026-03-02 04:12:30 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        f'  File "/srv/sglang/srt/{frame}", line 12, in run',
        f"    {code}",
        SHAPES.format(a=a, b=b),
        *crashlog.KILLED,
    ]
    return crashlog.dressed([*crashlog.until("serving", context), *body], "cat").encode()


def test_the_widths_of_a_profile_are_told_apart() -> None:
    context = Context(numbers.of_profile(load("k26-ddtree")))
    log = crash(8, 33, "model_executor/cuda_graph_runner.py", "torch._foreach_copy_(group_dsts, group_srcs)")
    verdict = classify(io.BytesIO(log), context)
    assert verdict.category == "graph_shape_mismatch"
    assert "8 is the block size" in verdict.cause
    assert "33 is the tree's verify width (budget 32 + 1)" in verdict.cause


def test_the_context_edge_is_no_graph_width() -> None:
    log = crash(
        40960, 40968, "layers/attention/x_backend.py", "metadata.replay_cuda_graph.copy_(rows)", 40960
    )
    verdict = classify(io.BytesIO(log))
    assert (verdict.category, verdict.subcode) == ("runtime_shape_mismatch", "context-length-edge")
    assert "40960 is the context length; 40968 is the context length + 8" in verdict.cause


def test_sizes_of_the_two_models_are_a_wrong_pair() -> None:
    log = crash(163840, 151936, "models/dflash.py", "logits = logits + draft_logits").replace(
        b"Decode", b"Other"
    )
    verdict = classify(io.BytesIO(log), Context(Numbers(vocab=163840, draft_vocab=151936)))
    assert verdict.category == "draft_target_mismatch"
    assert "163840 is the target's vocabulary; 151936 is the draft's vocabulary" in verdict.cause


def test_numbers_that_mean_nothing_are_not_explained() -> None:
    assert Numbers(block=8, budget=32).explained([5, 1234567]) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (33, "the tree's verify width (budget 32 + 1)"),
        (32, "the budget without the root"),
        (8, "the block size, the width of a draft worker"),
        (132, "4 requests of the tree's verify width 33"),
        (24, "3 requests of the block size 8"),
        (7168, "the target's hidden size"),
        (43008, "hidden size × 6 tapped layers"),
        (35840, "hidden size × 5"),
        (131080, "the context length + 8"),
        (131065, "the context length − 7"),
        (5, None),
    ],
)
def test_meaning(value: int, words: str | None) -> None:
    known = Numbers(block=8, budget=32, context=131072, hidden=7168, taps=6, vocab=163840)
    assert known.meaning(value) == words


def test_the_log_says_what_the_profile_does_not() -> None:
    said = numbers.of_log(
        ["server_args=ServerArgs(context_length=4096, speculative_num_draft_tokens=16, page_size=1)"]
    )
    assert said == Numbers(context=4096, draft_tokens=16)
    assert Numbers(context=8192).over(said) == Numbers(context=8192, draft_tokens=16)
    assert numbers.of_log(["nothing"]) == Numbers()


def test_the_index_of_a_graph_copy_names_its_field() -> None:
    assert [numbers.graph_field(index) for index in range(5)] == list(numbers.GRAPH_FIELDS)
    assert "num_token_non_padded" in numbers.graph_field(5)


def test_a_marker_without_a_field_is_explained_by_its_index() -> None:
    event = {"patch": "graph-copy", "event": "none", "index": 4, "side": "src", "worker": "draft", "rank": 2}
    marker = f"ddtool-diag/1 {json.dumps(event)}"
    log = crash(1, 2, "model_executor/cuda_graph_runner.py", "_grouped_foreach_copy_(dsts, srcs)").decode()
    log = log.replace(SHAPES.format(a=1, b=2), "AttributeError: 'NoneType' object has no attribute 'dtype'")
    verdict = classify(
        io.BytesIO(log.replace("[2026-03-02 04:12:30 TP1]", f"{marker}\n[2026-03-02 04:12:30 TP1]").encode())
    )
    assert verdict.category == "graph_none_buffer"
    assert "entry 4 of the copy, positions, is None (draft worker, rank 2)" in verdict.cause
