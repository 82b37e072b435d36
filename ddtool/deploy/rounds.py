"""What a traced completion says about its rounds: the tree that the target verified, and the path it accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """A drafted token. rank: which of the drafter's choices for its position, from 1; logprob: the drafter's, in nats.

    parent: index among the tree's nodes; None for those that follow the root.
    """

    token: int
    text: str
    parent: int | None
    depth: int
    rank: int
    logprob: float
    accepted: bool


@dataclass(frozen=True)
class DraftedRound:
    """One round of a request. position: of the root, the last token known before, in prompt and answer together.

    nodes: best first, parents before children. path: indices of the accepted ones, from the root down. gained: what the
    target said at its end, as text: the round's last token, and the next round's root.
    """

    number: int
    position: int
    root: str
    nodes: tuple[Node, ...]
    path: tuple[int, ...]
    gained: str

    @property
    def first_choices(self) -> int:
        """How many of the accepted tokens the drafter's first choices had, from the root on: what a chain accepts."""
        ranks = [self.nodes[index].rank for index in self.path]
        return next((depth for depth, rank in enumerate(ranks) if rank > 1), len(ranks))

    def to_json(self) -> dict[str, Any]:
        return {
            "round": self.number,
            "position": self.position,
            "root": self.root,
            "accepted": len(self.path),
            "first_choices": self.first_choices,
            "gained": self.gained,
            "nodes": [asdict(node) for node in self.nodes],
        }


def drafted_rounds(answer: Mapping[str, Any]) -> list[DraftedRound]:
    """The rounds of the agent's answer to `generate.rounds`, in order."""
    said, prompt = answer["output_ids"], answer["meta_info"]["prompt_tokens"]
    return [_round(line, answer["texts"], said, prompt) for line in answer["rounds"]]


def most_telling(rounds: Sequence[DraftedRound]) -> DraftedRound:
    """The round that shows best what a tree is for: the largest gain over first choices, then the longest path."""
    return max(rounds, key=lambda one: (len(one.path) - one.first_choices, len(one.path), -one.number))


def _round(
    line: Mapping[str, Any], texts: Mapping[str, str], said: Sequence[int], prompt: int
) -> DraftedRound:
    def text(token: int) -> str:
        return texts.get(str(token), f"#{token}")

    parents, ranks = line["parents"], line["ranks"]
    nodes: list[Node] = []
    path: list[int] = []
    for parent, rank in zip(parents[1:], ranks[1:], strict=True):
        if parent < 0:  # padding: fewer prefixes exist than the budget has room for
            break
        above = None if parent == 0 else parent - 1
        depth = 1 if above is None else nodes[above].depth + 1
        follows = above == (path[-1] if path else None)
        accepted = follows and line["path_ranks"][depth - 1 : depth] == [rank]
        if accepted:
            path.append(len(nodes))
        token = line["ids"][depth - 1][rank]
        nodes.append(
            Node(token, text(token), above, depth, rank + 1, line["logprobs"][depth - 1][rank], accepted)
        )
    root = line["position"] - prompt  # its place in the answer
    return DraftedRound(
        number=line["round"],
        position=line["position"],
        root=text(said[root]),
        nodes=tuple(nodes),
        path=tuple(path),
        gained=text(said[root + len(path) + 1]),
    )
