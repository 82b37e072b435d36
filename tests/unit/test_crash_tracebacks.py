"""Tracebacks of several ranks, put together again however their lines were mixed."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash.model import Line, Traceback
from ddtool.crash.source import read
from ddtool.crash.tracebacks import innermost, tracebacks

FRAMES = [
    ("/s/managers/scheduler.py", 4062, "run_scheduler_process", "scheduler.run_event_loop()"),
    ("/s/managers/scheduler.py", 1482, "event_loop_overlap", "batch_result = self.run_batch(batch)"),
    ("/s/speculative/worker.py", 612, "run_batch", "return self.target.forward("),
    ("/s/graph/runner.py", 873, "forward", "self.replay_prepare(forward_batch)"),
    ("/s/graph/runner.py", 812, "replay_prepare", "torch._foreach_copy_(dsts, srcs)"),
]
WIDTHS = "RuntimeError: The size of tensor a (8) must match the size of tensor b (33)"
CLOSED = "RuntimeError: [/gloo/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:40122"


def block(rank: int | None, frames: Sequence[tuple[str, int, str, str]], error: str) -> list[str]:
    stamp = f"[2026-05-21 10:12:31 TP{rank}] Scheduler hit an exception: " if rank is not None else ""
    out = [f"{stamp}Traceback (most recent call last):"]
    for path, number, function, code in frames:
        out += [f'  File "{path}", line {number}, in {function}', f"    {code}"]
    return [*out, error]


def found_in(lines: Sequence[str]) -> tuple[Traceback, ...]:
    return tracebacks(read(io.BytesIO("\n".join(lines).encode())))


def shape(traceback: Traceback) -> tuple[int | None, str, list[str]]:
    return (
        traceback.rank,
        f"{traceback.kind}: {traceback.message}",
        [frame.function for frame in traceback.frames],
    )


def functions(frames: Sequence[tuple[str, int, str, str]]) -> list[str]:
    return [function for _, _, function, _ in frames]


def interleavings(blocks: Sequence[list[str]]) -> st.SearchStrategy[list[tuple[int, str]]]:
    """Any order that keeps each block's own."""
    turns = st.permutations([index for index, lines in enumerate(blocks) for _ in lines])

    def merge(order: Sequence[int]) -> list[tuple[int, str]]:
        queues = [iter(lines) for lines in blocks]
        return [(index, next(queues[index])) for index in order]

    return turns.map(merge)


def test_one_traceback() -> None:
    (traceback,) = found_in(["before", *block(3, FRAMES, WIDTHS), "", "after"])
    assert shape(traceback) == (3, WIDTHS, functions(FRAMES))
    assert traceback.frames[0].path == FRAMES[0][0]
    assert (traceback.frames[-1].lineno, traceback.frames[-1].code) == (812, FRAMES[-1][3])
    assert traceback.error.number == 13
    assert [line.number for line in traceback.lines] == list(range(2, 14))


def test_ranks_in_step_without_any_mark_on_the_lines() -> None:
    blocks = [block(rank, FRAMES, WIDTHS) for rank in (3, 0, 5)]
    found = found_in([line for lines in zip(*blocks, strict=True) for line in lines])
    assert [shape(traceback) for traceback in found] == [
        (rank, WIDTHS, functions(FRAMES)) for rank in (3, 0, 5)
    ]


@given(interleavings([block(rank, FRAMES, WIDTHS) for rank in (3, 0)]))
def test_ranks_that_fail_alike_in_any_order(mixed: list[tuple[int, str]]) -> None:
    found = found_in([line for _, line in mixed])
    assert {traceback.rank for traceback in found} == {0, 3}
    assert all(traceback.kind == "RuntimeError" for traceback in found)
    assert {frame.function for traceback in found for frame in traceback.frames} == set(functions(FRAMES))
    assert sum(len(traceback.frames) for traceback in found) == 2 * len(FRAMES)


@given(
    interleavings(
        [block(3, FRAMES, WIDTHS), block(0, FRAMES[:2], CLOSED), block(None, FRAMES[1:4], "KeyError: 'x'")]
    )
)
def test_processes_that_are_named_are_never_mixed_up(mixed: list[tuple[int, str]]) -> None:
    found = found_in([f"May 21 10:11:12 host sglang[{500 + index}]: {line}" for index, line in mixed])
    assert sorted(map(shape, found), key=str) == sorted(
        [
            (3, WIDTHS, functions(FRAMES)),
            (0, CLOSED, functions(FRAMES[:2])),
            (None, "KeyError: 'x'", functions(FRAMES[1:4])),
        ],
        key=str,
    )


def test_torch_marks_every_line_with_its_rank() -> None:
    blocks = [[f"[rank{rank}]: {line}" for line in block(None, FRAMES, WIDTHS)] for rank in (1, 0)]
    found = found_in([line for lines in zip(*blocks, strict=True) for line in lines])
    assert [shape(traceback) for traceback in found] == [
        (1, WIDTHS, functions(FRAMES)),
        (0, WIDTHS, functions(FRAMES)),
    ]


def test_different_depths_in_step() -> None:
    """The deeper rank's calls tell its frames from those of the rank that only lost its peer."""
    deep, flat = block(3, FRAMES, WIDTHS), block(0, FRAMES[:2], CLOSED)
    mixed = [line for pair in zip(deep, flat, strict=False) for line in pair] + deep[len(flat) :]
    assert [shape(traceback) for traceback in found_in(mixed)] == [
        (3, WIDTHS, functions(FRAMES)),
        (0, CLOSED, functions(FRAMES[:2])),
    ]


@pytest.mark.parametrize(
    ("sentence", "blank"),
    [
        ("During handling of the above exception, another exception occurred:", [""]),
        ("The above exception was the direct cause of the following exception:", []),
    ],
)
def test_a_chain_keeps_its_causes(sentence: str, blank: list[str]) -> None:
    wrapper = "Exception: Capture cuda graph failed: The size of tensor a (8)"
    lines = [*block(2, FRAMES, WIDTHS), *blank, sentence, *blank, *block(None, FRAMES[:1], wrapper)]
    (traceback,) = found_in(lines)
    assert shape(traceback) == (2, wrapper, functions(FRAMES[:1]))
    assert shape(traceback.root) == (2, WIDTHS, functions(FRAMES))
    assert innermost([traceback])[2].function == "replay_prepare"


def test_a_chain_of_three_whose_middle_has_no_frames() -> None:
    chained = ["", "The above exception was the direct cause of the following exception:", ""]
    first = [
        *block(None, FRAMES, "requests.exceptions.HTTPError: 401"),
        *chained,
        "hub.GatedRepoError: 401",
        *chained,
    ]
    (traceback,) = found_in(
        [*first, *block(None, FRAMES[:1], "OSError: You are trying to access a gated repo.")]
    )
    assert [traceback.kind, traceback.cause and traceback.cause.kind, traceback.root.kind] == [
        "OSError",
        "hub.GatedRepoError",
        "requests.exceptions.HTTPError",
    ]


def test_chains_of_two_ranks_in_step() -> None:
    sentence = "During handling of the above exception, another exception occurred:"
    chains = [
        [
            *block(rank, FRAMES, f"ValueError: {rank}"),
            "",
            sentence,
            "",
            *block(None, FRAMES[:2], f"TypeError: {rank}"),
        ]
        for rank in (4, 6)
    ]
    found = found_in([line for lines in zip(*chains, strict=True) for line in lines])
    assert [(traceback.rank, traceback.message, traceback.root.message) for traceback in found] == [
        (4, "4", "4"),
        (6, "6", "6"),
    ]


def test_a_message_of_several_lines() -> None:
    advice = [
        "CUDA kernel errors might be asynchronously reported",
        "For debugging consider CUDA_LAUNCH_BLOCKING=1",
    ]
    (traceback,) = found_in(
        [*block(1, FRAMES, "torch.AcceleratorError: CUDA error: x"), *advice, "", "NCCL version 2"]
    )
    assert traceback.kind == "torch.AcceleratorError"
    assert traceback.message.split("\n") == ["CUDA error: x", *advice]


def test_a_paste_that_begins_in_the_middle() -> None:
    (traceback,) = found_in(block(3, FRAMES, WIDTHS)[4:])
    assert shape(traceback) == (None, WIDTHS, functions(FRAMES)[2:])


def test_a_paste_that_ends_in_the_middle() -> None:
    (traceback,) = found_in(block(3, FRAMES, WIDTHS)[:-2])
    assert (traceback.kind, traceback.message) == ("", "")
    assert traceback.frames[-1].function == "replay_prepare"


def test_a_paste_without_indentation() -> None:
    (traceback,) = found_in([line.strip() for line in block(3, FRAMES, WIDTHS)])
    assert shape(traceback) == (3, WIDTHS, functions(FRAMES))
    assert traceback.frames[0].code == FRAMES[0][3]


def test_carets_of_python_3_11_and_repeated_frames() -> None:
    lines = block(None, FRAMES[:2], "RecursionError: maximum recursion depth exceeded")
    lines.insert(3, "    ~~~~~~~~~~~~~~~~~~^^^^^")
    lines.insert(-1, "  [Previous line repeated 983 more times]")
    (traceback,) = found_in(lines)
    assert shape(traceback) == (
        None,
        "RecursionError: maximum recursion depth exceeded",
        functions(FRAMES[:2]),
    )


def test_a_dump_of_faulthandler_is_turned_round() -> None:
    (traceback,) = found_in(
        [
            "Fatal Python error: Segmentation fault",
            "",
            "Thread 0x00007f00 (most recent call first):",
            '  File "/usr/lib/python3.11/threading.py", line 324 in wait',
            "",
            "Current thread 0x00007f4858f86740 (most recent call first):",
            '  File "/s/pynccl_wrapper.py", line 351 in ncclCommInitRank',
            '  File "/s/parallel_state.py", line 233 in __init__',
            "Extension modules: numpy.core._multiarray_umath (total: 50)",
        ]
    )
    assert shape(traceback) == (
        None,
        "Fatal Python error: Segmentation fault",
        ["__init__", "ncclCommInitRank"],
    )
    assert traceback.error.number == 1


def test_exception_groups_and_remote_tracebacks() -> None:
    group = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/s/a.py", line 1, in f',
        "  |     g()",
    ]
    group += ["  | ExceptionGroup: two (1 sub-exception)", "  +-+---------------- 1 ----------------"]
    group += [
        "    | Traceback (most recent call last):",
        '    |   File "/s/b.py", line 2, in g',
        "    |     h()",
    ]
    group += ["    | ValueError: no", "    +------------------------------------"]
    assert [traceback.kind for traceback in found_in(group)] == ["ExceptionGroup", "ValueError"]
    remote = ["multiprocessing.pool.RemoteTraceback: ", '"""', *block(None, FRAMES, WIDTHS), '"""', ""]
    remote += ["The above exception was the direct cause of the following exception:", ""]
    (traceback,) = found_in([*remote, *block(None, FRAMES[:1], WIDTHS)])
    assert traceback.root.frames[-1].function == "replay_prepare"


def test_healthy_lines_are_no_traceback() -> None:
    assert (
        found_in(["Loading: 100%", "INFO: ok", "RuntimeError: said without a traceback", "    indented"])
        == ()
    )


@given(
    st.lists(
        st.sampled_from(
            [
                *block(3, FRAMES, WIDTHS),
                *block(None, FRAMES, CLOSED),
                "",
                "x",
                "During handling of the above exception",
            ]
        )
    )
)
def test_shuffled_lines_lose_nothing_and_break_nothing(lines: list[str]) -> None:
    for traceback in found_in(lines):
        numbers = [line.number for line in traceback.lines]
        assert numbers == sorted(set(numbers))
        assert isinstance(traceback.root.error, Line)


def test_endless_chains_and_endless_beginnings() -> None:
    chained = "During handling of the above exception, another exception occurred:"
    chain = found_in([*block(None, FRAMES[:1], "ValueError: x"), chained] * 300)
    assert chain[-1].root.kind == "ValueError"
    assert sum(len(traceback.lines) for traceback in chain) >= 4
    begun = found_in(["Traceback (most recent call last):", '  File "/s/a.py", line 1, in f'] * 300)
    assert sum(len(traceback.frames) for traceback in begun) == 300
