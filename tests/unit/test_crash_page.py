"""A verdict as a page: what stands where, at any width, and that a log cannot draw on the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash.model import FirstCause, Verdict
from ddtool.crash.page import brief, grouped, page, spans, text

SIZES = (
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0"
)
RANKS = tuple(
    {"rank": rank, "phase": "serving", "line": 35 + rank, "text": SIZES, "first": rank == 3}
    if rank != 7
    else {"rank": 7, "phase": "capture", "line": None, "text": None, "first": False}
    for rank in range(8)
)


def verdict(**fields: object) -> Verdict:
    given = {
        "category": "graph_shape_mismatch",
        "subcode": "verify-budget-vs-capture",
        "cause": "The graph was captured for 8 tokens a request (the block), verify sends 33 (budget + 1).",
        "first_cause": FirstCause(35, SIZES, 3, "target"),
        "cascade": (
            FirstCause(53, "SIGQUIT received. signum=None, frame=None."),
            FirstCause(55, "recvValue", 5),
        ),
        "evidence": (FirstCause(12, "Capture cuda graph bs [1, 2, 4, 8]", 0),),
        "missing": ("the kernel's lines: logs --kernel",),
        "remedy": "Give the target's graphs budget + 1 tokens per request.",
        "next_command": "ddtool diag run graph-shapes",
        "confidence": "high",
        "fingerprint": "v1:0123456789abcdef",
        "ranks": RANKS,
        **fields,
    }
    return Verdict(**given)  # type: ignore[arg-type]


def test_the_page_at_eighty_columns() -> None:
    shown = text(page(verdict(), 80, heading="sglang, run 4f1c9a2b", seen="2 times"))
    assert (
        shown
        == """\
sglang, run 4f1c9a2b
graph_shape_mismatch / verify-budget-vs-capture                  confidence high
The graph was captured for 8 tokens a request (the block), verify sends 33
(budget + 1).

first cause  line 35, rank 3, target worker
             RuntimeError: The size of tensor a (8) must match the size of
             tensor b (33) at non-singleton dimension 0

rank      reached  line  said
first 3   serving  38    RuntimeError: The size of tensor a (8) must match the
                         size of tensor b (33) at non-singleton dimension 0
0-2, 4-6  serving  35    the same
7         capture  -     nothing

then         line 53          SIGQUIT received. signum=None, frame=None.
             line 55, rank 5  recvValue

evidence     line 12, rank 0  Capture cuda graph bs [1, 2, 4, 8]

missing      the kernel's lines: logs --kernel

remedy       Give the target's graphs budget + 1 tokens per request.
next         ddtool diag run graph-shapes
seen         2 times
"""
    )


@given(st.integers(60, 160), st.text(max_size=400), st.text(max_size=60))
def test_no_row_is_wider_than_the_terminal(width: int, said: str, name: str) -> None:
    ranks = tuple({**row, "text": said} for row in RANKS)
    made = verdict(
        first_cause=FirstCause(1, said), cause=said, remedy=said, ranks=ranks, missing=(said, said)
    )
    for lines in (page(made, width), brief(made, width)):
        assert max(map(len, text(lines).split("\n"))) <= width


@pytest.mark.parametrize("bad", ["\x1b[2J\x1b[31m", "\r", "\u202e", "\u061c", "\x9b31m", "\x00", "\u2028"])
def test_a_log_cannot_draw_on_the_terminal(bad: str) -> None:
    said = f"before{bad}after [bold]x[/bold]"
    made = verdict(
        first_cause=FirstCause(1, said), cascade=(FirstCause(2, said),), cause=said, missing=(said,)
    )
    shown = text(page(made, 100, heading=said))
    assert bad not in shown and "\x1b" not in shown
    assert "[bold]x[/bold]" in shown


def test_a_long_cascade_says_how_much_is_left_out() -> None:
    cascade = tuple(FirstCause(number, f"line {number}") for number in range(1, 20))
    assert "and 13 more" in text(page(verdict(cascade=cascade), 80))


def test_no_crash_is_a_short_page() -> None:
    healthy = Verdict("no_crash", None, "It serves.", None, (), (), (), "", "", "high", None)
    assert text(page(healthy, 80)).count("\n") == 2


def test_ranks_that_say_the_same_share_a_row() -> None:
    rows = grouped(RANKS)
    assert [(row["ranks"], row["text"][:8]) for row in rows] == [
        ("3", "RuntimeE"),
        ("0-2, 4-6", "the same"),
        ("7", ""),
    ]


def test_what_torch_puts_before_its_lines_leaves_room_for_what_they_say() -> None:
    head = "[rank1]:[E623 10:10:07.118334001 ProcessGroupNCCL.cpp:685] [Rank 1] "
    shown = text(page(verdict(cascade=(FirstCause(9, f"{head}Watchdog caught collective", 1),)), 80))
    assert "line 9, rank 1  Watchdog caught collective" in shown


def test_spans() -> None:
    assert spans([5, 0, 2, 1, 9, 8]) == "0-2, 5, 8-9"
