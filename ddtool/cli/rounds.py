"""A round as a drawing: its tree down the page, one drafted token a line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import exp
from typing import TYPE_CHECKING

from ddtool.cli import output

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text
    from rich.tree import Tree

    from ddtool.deploy.rounds import DraftedRound

WIDEST = 100
INDENT = 4  # of rich's guides, a level
COLUMNS = {"depth": 6, "choice": 7, "log p": 8, "p of path": 11, "taken": 7}


def drawing(drafted: DraftedRound, width: int) -> Group:
    """What `generate --tree` shows, `width` columns at most.

    A token without siblings stands under its parent instead of beside it, so that the drawing is as deep as the tree
    branches, not as deep as it reaches.
    """
    from rich.console import Group
    from rich.text import Text
    from rich.tree import Tree

    width = min(width, WIDEST)
    header = "".join(f"{name:>{size}}" for name, size in COLUMNS.items())
    tree = Tree(Text(quoted(drafted.root), "bold"), guide_style="dim")
    children: dict[int | None, list[int]] = defaultdict(list)
    for index, node in enumerate(drafted.nodes):
        children[node.parent].append(index)
    _grow(tree, _lines(drafted), children, None, width - INDENT)
    return Group(
        Text(header.rjust(width), "dim"),
        tree,
        Text(f"then the target says {quoted(drafted.gained)}"),
    )


def summary(drafted: DraftedRound, rounds: int) -> str:
    """One sentence about the round, of so many."""
    inner = {node.parent for node in drafted.nodes}
    leaves = sum(index not in inner for index in range(len(drafted.nodes)))
    return (
        f"round {drafted.number + 1} of {rounds}: {len(drafted.nodes)} nodes on {leaves} paths in one forward; "
        f"{len(drafted.path)} accepted, {drafted.first_choices} with the drafter's first choices alone"
    )


def quoted(token: str) -> str:
    """A token with its spaces and line breaks to be seen."""
    return output.safe(json.dumps(token, ensure_ascii=False))


def _grow(
    tree: Tree,
    lines: list[tuple[str, str, str]],
    children: Mapping[int | None, list[int]],
    parent: int | None,
    width: int,
) -> None:
    """Add the branches below `parent`. lines: token, numbers and style of each node. width: of a branch's lines."""
    for first in children[parent]:
        run = list(_only_children(children, first))
        _grow(
            tree.add(_label([lines[index] for index in run], width)), lines, children, run[-1], width - INDENT
        )


def _only_children(children: Mapping[int | None, list[int]], index: int) -> Iterator[int]:
    """`index` and what is below it, as long as each is an only child."""
    yield index
    while len(children[index]) == 1:
        (index,) = children[index]
        yield index


def _label(lines: list[tuple[str, str, str]], width: int) -> Text:
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    label = Text(no_wrap=True)
    for token, numbers, style in lines:
        room = max(width - len(numbers), 1)
        shown = token if cell_len(token) <= room else set_cell_size(token, room - 1) + "…"
        line = set_cell_size(shown, room) + numbers
        label.append(("\n" if label else "") + line.rstrip(), style)
    return label


def _lines(drafted: DraftedRound) -> list[tuple[str, str, str]]:
    totals: list[float] = []
    lines = []
    for node in drafted.nodes:
        totals.append(node.logprob + (0.0 if node.parent is None else totals[node.parent]))
        cells = (
            str(node.depth),
            str(node.rank),
            f"{node.logprob:.2f}",
            f"{exp(totals[-1]):.1%}",
            "✓" if node.accepted else "",
        )
        numbers = "".join(cell.rjust(size) for cell, size in zip(cells, COLUMNS.values(), strict=True))
        lines.append((quoted(node.text), numbers, "bold green" if node.accepted else ""))
    return lines
