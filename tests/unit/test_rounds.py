"""`generate --tree`: from a verify trace to a round, and from a round to a drawing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from ddtool.cli.generate import chosen_round
from ddtool.cli.rounds import drawing, quoted, summary
from ddtool.deploy.rounds import DraftedRound, drafted_rounds, most_telling
from ddtool.errors import DdtoolError, UsageError

TEXTS = {
    "0": "for",
    "1": " name",
    "2": " in",
    "3": "\n",
    "4": "日本",
    "5": "(",
    "6": " os",
    "7": "\x1b[31m",
    "8": " a-token-that-is-longer-than-any-column-has-room-for-it-to-be-shown-in-full",
}


def line(number: int = 0, position: int = 5, path_ranks: list[int] | None = None) -> dict[str, Any]:
    """Two positions beyond the root, three choices each:

    root ─ 0:" name" ─ 0:" in" ─ 0:" os"
         │           └ 1:"\\n"
         └ 1:"日本" ── 0:" in"
    """
    path = [0, 1] if path_ranks is None else path_ranks
    return {
        "rid": "ddtool-rounds-0123456789abcdef",
        "round": number,
        "position": position,
        "logprobs": [[-0.25, -1.5, -3.0], [-0.5, -2.0, -4.0], [-0.125, -5.0, -6.0]],
        "ids": [[1, 4, 7], [2, 3, 8], [6, 5, 0]],
        "parents": [-1, 0, 1, 2, 0, 1, 4, -1],  # the last is padding
        "ranks": [0, 0, 0, 0, 1, 1, 0, 0],
        "path_ranks": path,
        "accepted": len(path),
    }


def answer(*lines: dict[str, Any]) -> dict[str, Any]:
    return {
        "rounds": list(lines),
        "texts": TEXTS,
        "output_ids": [0, 1, 3, 5, 6, 2, 2, 2, 2],
        "meta_info": {"prompt_tokens": 5, "completion_tokens": 9},
    }


def one(**changes: Any) -> DraftedRound:
    (drafted,) = drafted_rounds(answer(line(**changes)))
    return drafted


def test_a_line_of_the_trace_becomes_a_tree() -> None:
    drafted = one()
    assert [(node.text, node.parent, node.depth, node.rank, node.logprob) for node in drafted.nodes] == [
        (" name", None, 1, 1, -0.25),
        (" in", 0, 2, 1, -0.5),
        (" os", 1, 3, 1, -0.125),
        ("日本", None, 1, 2, -1.5),
        ("\n", 0, 2, 2, -2.0),
        (" in", 3, 2, 1, -0.5),
    ]
    assert [drafted.nodes[index].text for index in drafted.path] == [" name", "\n"]
    assert [node.accepted for node in drafted.nodes] == [True, False, False, False, True, False]
    assert (drafted.root, drafted.gained) == ("for", "(")
    assert drafted.first_choices == 1


def test_a_path_of_first_choices_and_one_that_ends_at_once() -> None:
    whole, none = one(path_ranks=[0, 0, 0]), one(path_ranks=[])
    assert (whole.path, whole.first_choices) == ((0, 1, 2), 3)
    assert (none.path, none.first_choices, none.gained) == ((), 0, " name")


def test_a_token_that_the_server_did_not_decode_is_its_number() -> None:
    (drafted,) = drafted_rounds({**answer(line()), "texts": {}})
    assert (drafted.root, drafted.nodes[0].text) == ("#0", "#1")


def test_the_round_that_is_drawn_shows_what_a_tree_gains() -> None:
    rounds = drafted_rounds(
        answer(line(0, path_ranks=[0, 0, 0]), line(1, 6, path_ranks=[1, 0]), line(2, 7, path_ranks=[0, 1]))
    )
    assert most_telling(rounds).number == 1
    assert most_telling(rounds[:1]).number == 0


def drawn(drafted: DraftedRound, width: int) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=width, markup=False, highlight=False).print(drawing(drafted, width))
    return page.getvalue().splitlines()


def test_the_drawing_at_80_columns() -> None:
    assert drawn(one(), 80) == [
        "                                          depth choice   log p  p of path  taken",
        '"for"',
        '├── " name"                                   1      1   -0.25      77.9%      ✓',
        '│   ├── " in"                                 2      1   -0.50      47.2%',
        '│   │   " os"                                 3      1   -0.12      41.7%',
        '│   └── "\\n"                                  2      2   -2.00      10.5%      ✓',
        '└── "日本"                                    1      2   -1.50      22.3%',
        '    " in"                                     2      1   -0.50      13.5%',
        'then the target says "("',
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_columns_stand_under_each_other_at_any_width(width: int) -> None:
    """Whatever a token holds: wide characters, escape sequences, more than there is room for."""
    changed = line()
    changed["ids"] = [[8, 4, 0], [7, 8, 1], [4, 7, 2]]
    (drafted,) = drafted_rounds(answer(changed))
    head, _, *lines, _ = drawn(drafted, width)
    assert cell_len(head) == min(width, 100)
    assert {cell_len(text) for text in lines if "✓" in text} == {min(width, 100)}
    assert max(map(cell_len, lines)) <= min(width, 100)
    assert not any("\x1b" in text for text in lines)
    assert any("…" in text for text in lines)


def test_tokens_are_quoted_and_carry_no_control_characters() -> None:
    assert quoted("\n  x") == r'"\n  x"'
    assert quoted("\x1b[31m") == r'"\u001b[31m"'
    assert quoted("a\x9bb") == '"ab"'


def test_the_sentence() -> None:
    assert summary(one(), 12) == (
        "round 1 of 12: 6 nodes on 3 paths in one forward; 2 accepted, 1 with the drafter's first choices alone"
    )


@pytest.mark.parametrize(
    ("rounds", "number", "tokens", "error", "said"),
    [
        ([], None, 9, DdtoolError, "reported no round"),  # another engine, or an older one
        ([], None, 1, UsageError, "ended with its first token"),
        ([line()], 2, 9, UsageError, "no round 2: this request took 1"),
    ],
)
def test_no_such_round(
    rounds: list[dict[str, Any]], number: int | None, tokens: int, error: type[DdtoolError], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        chosen_round(drafted_rounds(answer(*rounds)), number, {"completion_tokens": tokens})
    assert type(caught.value) is error
    assert caught.value.hint


def test_a_round_by_its_number() -> None:
    rounds = drafted_rounds(answer(line(0), line(1, 6, path_ranks=[])))
    assert chosen_round(rounds, 2, {}).number == 1
    assert chosen_round(rounds, None, {}).number == 0
