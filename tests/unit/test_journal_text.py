"""Rank and level, read from lines as SGLang, torch, uvicorn and Python print them."""

from __future__ import annotations

import pytest

from ddtool.agent.journal_text import Reader, level_of_text, plain, rank_of_text, rank_of_title

STAMP = "2025-11-29 19:01:02"


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (f"[{STAMP} TP3] Load weight begin.", 3),
        (f"[{STAMP}.123 DP1 TP12 EP4] Decode batch", 12),
        (f"[{STAMP} PP0 ATTN_CP1 TP0] x", 0),
        (f"[{STAMP}] server_args=ServerArgs(TP3)", None),
        ("[rank5]:[E1129 19:01:02.000000 ProcessGroupNCCL.cpp:1] hang", 5),
        ('ddtool-diag/1 {"patch": "graph-copy", "rank": 2, "pid": 1}', 2),
        ("the text says TP4 somewhere", None),
        # more digits than Python reads as a number
        (f"[{STAMP} TP{'9' * 5000}] x", None),
        (f"[rank{'9' * 5000}]: x", None),
        (f'ddtool-diag/1 {{"rank": {"9" * 5000}}}', None),
    ],
)
def test_rank_of_text(text: str, rank: int | None) -> None:
    assert rank_of_text(text) == rank


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler_TP3", 3),
        ("sglang::scheduler_DP1_TP12_EP0", 12),
        ("sglang::scheduler", 0),
        ("sglang::detokenizer", None),
        ("python -m sglang.launch_server", None),
    ],
)
def test_rank_of_title(title: str, rank: int | None) -> None:
    assert rank_of_title(title) == rank


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (f"[{STAMP} TP3] Load weight begin.", "info"),
        (f'[{STAMP}] INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK', "info"),
        (f"[{STAMP} TP0] WARNING: the cache is cold", "warning"),
        (f"[{STAMP} TP0] Error in the request", "error"),
        (f"[{STAMP} TP0] Scheduler hit an exception: Traceback (most recent call last):", "error"),
        ("WARNING:root:old style", "warning"),
        ("INFO:     Started server process [1]", "info"),
        ("2025-11-29 19:01:02,123 - flashinfer.jit - ERROR - no ninja", "error"),
        ("[rank0]:[W1129 19:01:02.000000 init.cpp:7] slow", "warning"),
        ("/opt/venv/x.py:12: UserWarning: no", "warning"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "error"),
        ("Fatal Python error: Aborted", "error"),
        ("DEBUG: detail", "debug"),
        ("a line of its own", None),
        ("information about errors", None),
        ("  20%|## | 2/10 [00:01<00:04]", None),
    ],
)
def test_level_of_text(text: str, level: str | None) -> None:
    assert level_of_text(text) == level


def test_a_traceback_is_errors_from_its_first_to_its_last_line() -> None:
    lines = [
        (f"[{STAMP} TP1] Scheduler hit an exception: Traceback (most recent call last):", "error"),
        ('  File "scheduler.py", line 1, in run', "error"),
        ("    step()", "error"),
        ("AttributeError: 'NoneType' object has no attribute 'dtype'", "error"),
        ("", "error"),
        ("During handling of the above exception, another exception occurred:", "error"),
        ("", "error"),
        ("Traceback (most recent call last):", "error"),
        ("some.module.Unusual: with a message", "error"),
        ("  that has two lines", "error"),
        (f"[{STAMP} TP1] next", "info"),
        ("plain", None),
    ]
    reader = Reader()
    assert [reader.level(7, text) for text, _ in lines] == [level for _, level in lines]


def test_tracebacks_of_two_ranks_do_not_mix() -> None:
    reader = Reader()
    reader.level(1, "Traceback (most recent call last):")
    assert reader.level(2, "  indented output of another process") is None
    assert reader.level(1, "  File") == "error"


def test_plain_is_what_a_terminal_would_leave() -> None:
    assert plain("\x1b[31mred\x1b[0m") == "red"
    assert plain("\r 10%\r 20%\r") == " 20%"
    assert plain("\x1b]0;title\x07text") == "text"
