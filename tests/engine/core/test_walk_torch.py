"""The accept walk against one that follows dictionaries, node by node."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ddtool.engine.core.trees import TreeBuilder, Trees
from ddtool.engine.core.walk import accept

pytestmark = pytest.mark.engine

VOCAB = 12  # small, so that a random target often agrees with the drafter
SHAPES = [(7, 8, 32), (7, 3, 7), (4, 2, 9), (3, 1, 8), (5, 4, 2), (1, 8, 8)]


def grow(shape: tuple[int, int, int], batch: int = 400, chain_seed: bool = False) -> tuple[Trees, Tensor]:
    """Trees, and choices of a target that follows some path of the tree for a while."""
    length, topk, budget = shape
    top = (2 * torch.randn(batch, length, VOCAB)).log_softmax(-1).topk(topk)
    trees = TreeBuilder(length, topk, budget, chain_seed)(
        top.values, top.indices, torch.randint(VOCAB, (batch,))
    )
    choices = torch.randint(VOCAB, (batch, budget + 1))
    for node in range(
        1, budget + 1
    ):  # later children overwrite earlier ones: each node follows one of its children
        parent = trees.parents[:, node]
        follow = (parent >= 0) & (torch.rand(batch) < 0.6)
        choices[follow, parent[follow]] = trees.tokens[follow, node]
    return trees, choices


def follow_dicts(trees: Trees, choices: Tensor, row: int) -> list[int]:
    children: dict[tuple[int, int], int] = {}
    parents, tokens = trees.parents[row].tolist(), trees.tokens[row].tolist()
    for node, parent in enumerate(parents):
        if parent >= 0:
            assert (parent, tokens[node]) not in children, "siblings share a token"
            children[parent, tokens[node]] = node
    path = [0]
    while (step := (path[-1], int(choices[row, path[-1]]))) in children:
        path.append(children[step])
    return path


@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_to_the_walk_over_dictionaries(shape: tuple[int, int, int], chain_seed: bool) -> None:
    torch.manual_seed(1)
    trees, choices = grow(shape, chain_seed=chain_seed)
    nodes, lengths = accept(trees, choices, shape[0])
    assert nodes.shape == (400, shape[0] + 1)
    for row in range(400):
        path = follow_dicts(trees, choices, row)
        assert lengths[row] == len(path) - 1
        assert nodes[row].tolist() == path + [path[-1]] * (shape[0] + 1 - len(path))
        emitted = choices.gather(1, nodes)[row].tolist()
        assert emitted[: len(path) - 1] == trees.tokens[row, path[1:]].tolist()
        assert emitted[-1] == choices[row, path[-1]]  # the bonus token
    if shape == (7, 8, 32):
        assert lengths.bincount().gt(0).sum() >= 5, "the case is too easy"
        ranks = trees.ranks.gather(1, nodes)
        assert ((ranks > 0).any(1)).sum() > 50, "hardly a path leaves the chain"


def test_padding_is_never_accepted() -> None:
    """Its token is the root's, and the target may well say that token again and again."""
    ids = torch.tensor([[[7]]])
    trees = TreeBuilder(1, 1, 6)(torch.zeros(1, 1, 1), ids, torch.tensor([7]))
    nodes, lengths = accept(trees, torch.full((1, 7), 7), 1)
    assert nodes.tolist() == [[0, 1]]
    assert lengths.tolist() == [1]


def test_token_zero_and_a_token_that_repeats_its_parent() -> None:
    ids = torch.zeros(1, 3, 1, dtype=torch.int64)
    trees = TreeBuilder(3, 1, 3)(torch.zeros(1, 3, 1), ids, torch.tensor([0]))
    nodes, lengths = accept(trees, torch.zeros(1, 4, dtype=torch.int64), 3)
    assert nodes.tolist() == [[0, 1, 2, 3]]
    assert lengths.tolist() == [3]


def test_a_token_twice_among_siblings_still_gives_one_path() -> None:
    """A drafter's fault, but not one that may corrupt the output."""
    ids = torch.tensor([[[4, 4], [5, 6]]])
    trees = TreeBuilder(2, 2, 6)(torch.tensor([[[-0.5, -0.6], [-0.5, -0.6]]]), ids, torch.tensor([3]))
    choices = torch.where(trees.tokens == 3, 4, 6)
    nodes, lengths = accept(trees, choices, 2)
    first, second = nodes[0, 1].item(), nodes[0, 2].item()
    assert lengths.tolist() == [2]
    assert trees.parents[0, second] == first
    assert trees.parents[0, first] == 0


def test_a_causal_mask_or_positions_in_sequence_would_be_noticed() -> None:
    """Of the walk's own inputs, each is needed."""
    torch.manual_seed(2)
    trees, choices = grow((7, 8, 32))
    right = accept(trees, choices, 7)
    causal = torch.ones(33, 33, dtype=torch.bool).tril().expand(400, -1, -1)
    for wrong in (
        trees._replace(visible=causal),
        trees._replace(parents=(torch.arange(33) - 1).expand(400, -1)),
        trees._replace(tokens=trees.tokens.roll(1, 1)),
    ):
        assert any(
            not torch.equal(one, other) for one, other in zip(right, accept(wrong, choices, 7), strict=True)
        )
