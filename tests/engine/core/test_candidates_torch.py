"""The candidate table: nothing missing, nothing superfluous."""

from __future__ import annotations

from itertools import product

import pytest
from support.best_first import best_first

from ddtool.engine.core.candidates import candidate_table, enumerate_candidates

pytestmark = pytest.mark.engine

SHAPES = [(3, 3, 5), (4, 2, 7), (2, 6, 9), (5, 3, 6), (3, 4, 20), (4, 3, 2), (1, 4, 3)]


@pytest.mark.parametrize(("budget", "size"), [(16, 250), (32, 1083), (64, 4038)])
def test_sizes_for_a_block_of_eight(budget: int, size: int) -> None:
    found = enumerate_candidates(7, 8, budget)
    assert found is not None
    assert len(found) == size + 1  # and the root


@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize(("length", "topk", "budget"), SHAPES)
def test_a_node_is_a_candidate_exactly_if_some_tree_has_it(
    length: int, topk: int, budget: int, chain_seed: bool
) -> None:
    """For a node's own ranks and better ones cheap and all else dear, the tree has it if any tree can."""
    possible = {()}
    for depth in range(1, length + 1):
        for ranks in product(range(topk), repeat=depth):
            costs = [
                [
                    rank if position < depth and rank <= ranks[position] else 10**6 + rank
                    for rank in range(topk)
                ]
                for position in range(length)
            ]
            if ranks in best_first(costs, budget, chain_seed):
                possible.add(ranks)
    found = enumerate_candidates(length, topk, budget, chain_seed)
    assert found is not None
    if chain_seed and budget < length:  # the rest of the chain is listed and never chosen
        found = [ranks for ranks in found if len(ranks) <= budget]
    assert {tuple(rank - 1 for rank in ranks) for ranks in found} == possible


def test_order_puts_whatever_must_precede_a_node_before_it() -> None:
    found = enumerate_candidates(4, 4, 16)
    assert found is not None
    place = {ranks: index for index, ranks in enumerate(found)}
    for ranks in found:
        for depth in range(len(ranks)):
            assert place[ranks[:depth]] < place[ranks]
            better = (*ranks[:depth], ranks[depth] - 1, *ranks[depth + 1 :])
            assert ranks[depth] == 1 or place[better] < place[ranks]


def test_the_limit_is_exact() -> None:
    assert candidate_table(7, 8, 16, False, 251) is not None
    assert candidate_table(7, 8, 16, False, 250) is None


def test_a_candidates_cost_counts_each_step_of_its_path_once() -> None:
    table, found = candidate_table(7, 3, 12, False, 1000), enumerate_candidates(7, 3, 12)
    assert table is not None
    assert found is not None
    for ranks, column in zip(found, table.paths.T, strict=True):
        steps = [position * 3 + rank - 1 for position, rank in enumerate(ranks)]
        assert column.nonzero().flatten().tolist() == steps
