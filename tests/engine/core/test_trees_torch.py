"""Trees against the paper's heap, and what holds for any input whatever."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.best_first import Ranks, best_first, exact_costs
from torch import Tensor

from ddtool.engine.core import trees as trees_module
from ddtool.engine.core.trees import TreeBuilder, Trees

pytestmark = pytest.mark.engine

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
INF = math.inf


def paths_of(trees: Trees, row: int) -> list[Ranks]:
    """Each node of one tree as its rank tuple, in row order; padding left out. Follows `parents` alone."""
    parents, ranks = trees.parents[row].tolist(), trees.ranks[row].tolist()
    paths: list[Ranks] = [()]
    for node in range(1, len(parents)):
        if parents[node] >= 0:
            paths.append((*paths[parents[node]], ranks[node]))
    return paths


def token_ids(batch: int, length: int, topk: int) -> Tensor:
    """Different at every place, so that a token says where it comes from."""
    return torch.arange(1, 1 + batch * length * topk).view(batch, length, topk) * 3


def check_structure(trees: Trees, ids: Tensor, roots: Tensor, budget: int) -> None:
    """Everything in `Trees` says the same tree."""
    batch, width = roots.shape[0], budget + 1
    assert trees.visible.shape == (batch, width, width)
    for row in range(batch):
        parents, depths = trees.parents[row].tolist(), trees.depths[row].tolist()
        paths = paths_of(trees, row)
        assert len(set(paths)) == len(paths)
        assert trees.tokens[row, 0] == roots[row]
        for node in range(width):
            if node < len(paths):
                path = paths[node]
                assert parents[node] == (paths.index(path[:-1]) if path else -1) < max(node, 1)
                assert depths[node] == len(path)
                assert not path or trees.tokens[row, node] == ids[row, len(path) - 1, path[-1]]
                ancestors = {paths.index(path[:depth]) for depth in range(len(path) + 1)}
            else:  # padding
                assert (parents[node], depths[node], trees.tokens[row, node]) == (-1, 0, roots[row])
                ancestors = {node}
            assert set(trees.visible[row, node].nonzero().flatten().tolist()) == ancestors


def gaussian(scale: float) -> Callable[[int, int, int], Tensor]:
    def draw(batch: int, length: int, topk: int) -> Tensor:
        return (scale * torch.randn(batch, length, 64)).log_softmax(-1).topk(topk).values

    return draw


def ties(batch: int, length: int, topk: int) -> Tensor:
    return -torch.randint(0, 3, (batch, length, topk)).float().sort(-1).values / 4


def flat(batch: int, length: int, topk: int) -> Tensor:
    return torch.full((batch, length, topk), -math.log(64.0))


def certain(batch: int, length: int, topk: int) -> Tensor:
    """Probability 1 somewhere and next to nothing elsewhere: children that cost exactly as much as their parents."""
    values = torch.full((batch, length, topk), -INF)
    values[:, :, 0] = torch.where(torch.rand(batch, length) < 0.7, 0.0, -1e-7)
    return values


def impossible(batch: int, length: int, topk: int) -> Tensor:
    values = gaussian(1.0)(batch, length, topk)
    return values.masked_fill(torch.arange(topk) >= torch.randint(0, topk + 1, (batch, length, 1)), -INF)


def free(batch: int, length: int, topk: int) -> Tensor:
    return torch.zeros(batch, length, topk)


def rounded_up(batch: int, length: int, topk: int) -> Tensor:
    """A confident drafter whose log-softmax came out a little above 0."""
    return gaussian(8.0)(batch, length, topk) + 3e-7


KINDS = {
    "flat-ish": gaussian(0.3),
    "typical": gaussian(2.0),
    "confident": gaussian(5.0),
    "peaked": gaussian(20.0),
    "ties": ties,
    "flat": flat,
    "certain": certain,
    "impossible": impossible,
    "free": free,
    "rounded-up": rounded_up,
}
SHAPES = [
    (7, 8, 32),
    (7, 8, 16),
    (7, 8, 7),
    (7, 8, 3),
    (3, 2, 14),
    (4, 3, 40),
    (15, 4, 24),
    (1, 8, 8),
    (2, 2, 9),
    (3, 1, 8),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_heap(kind: str, shape: tuple[int, int, int], chain_seed: bool, device: str) -> None:
    """Not only the same nodes: the same order. 20 trees a case, 8,000 in all."""
    torch.manual_seed(hash((shape, chain_seed)) % 1000)
    length, topk, budget = shape
    log_probs, ids, roots = KINDS[kind](20, length, topk), token_ids(20, length, topk), torch.arange(20)
    builder = TreeBuilder(length, topk, budget, chain_seed, device)
    trees = Trees(*(part.cpu() for part in builder(log_probs.to(device), ids.to(device), roots.to(device))))
    check_structure(trees, ids, roots, budget)
    for row in range(20):
        assert paths_of(trees, row)[1:] == best_first(
            exact_costs(log_probs[row].tolist()), budget, chain_seed
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize("shape", [(7, 8, 32), (7, 8, 5), (15, 4, 24), (3, 2, 9), (2, 3, 8)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_beams_grow_the_same_trees(
    kind: str, shape: tuple[int, int, int], chain_seed: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    length, topk, budget = shape
    inputs = KINDS[kind](40, length, topk), token_ids(40, length, topk), torch.arange(40)
    table = TreeBuilder(length, topk, budget, chain_seed)(*inputs)
    monkeypatch.setattr(trees_module, "TABLE_LIMIT", 1)
    beam = TreeBuilder(length, topk, budget, chain_seed, device)
    assert type(beam._grow).__name__ == "BeamGrower"
    for one, other in zip(table, beam(*(part.to(device) for part in inputs)), strict=True):
        assert torch.equal(one, other.cpu())


def test_a_shape_too_big_for_a_table_is_equal_to_the_heap() -> None:
    log_probs, ids, roots = gaussian(2.0)(2, 15, 8), token_ids(2, 15, 8), torch.arange(2)
    builder = TreeBuilder(15, 8, 256)
    assert type(builder._grow).__name__ == "BeamGrower"
    trees = builder(log_probs, ids, roots)
    check_structure(trees, ids, roots, 256)
    for row in range(2):
        assert paths_of(trees, row)[1:] == best_first(exact_costs(log_probs[row].tolist()), 256)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_floats_give_a_valid_tree(data: st.DataObject) -> None:
    """Unsorted, positive, NaN, infinite: the nodes may be poor ones, but they are a tree."""
    length, topk = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    budget, seeded = data.draw(st.integers(1, 20)), data.draw(st.booleans())
    numbers = st.floats(width=32) | st.sampled_from([0.0, -0.0, -INF, INF, math.nan, -1.0, -1e-40])
    values = data.draw(st.lists(numbers, min_size=length * topk, max_size=length * topk))
    ids, roots = token_ids(1, length, topk), torch.tensor([5])
    trees = TreeBuilder(length, topk, budget, seeded)(torch.tensor(values).view(1, length, topk), ids, roots)
    check_structure(trees, ids, roots, budget)
    if seeded:
        chain = [(0,) * depth for depth in range(min(length, budget) + 1)]
        assert paths_of(trees, 0)[: len(chain)] == chain


def test_no_batch_and_no_number_of_threads_changes_a_tree() -> None:
    torch.manual_seed(3)
    log_probs, ids = torch.cat([gaussian(5.0)(48, 7, 8), ties(48, 7, 8)]), token_ids(96, 7, 8)
    roots, builder = torch.arange(96), TreeBuilder(7, 8, 32)
    whole = builder(log_probs, ids, roots)
    threads = torch.get_num_threads()
    try:
        for count, size in [(1, 96), (2, 1), (4, 5), (3, 32)]:
            torch.set_num_threads(count)
            order = torch.randperm(96)
            for rows in order.split(size):
                for one, other in zip(builder(log_probs[rows], ids[rows], roots[rows]), whole, strict=True):
                    assert torch.equal(one, other[rows])
    finally:
        torch.set_num_threads(threads)


def test_no_better_tree_by_probability_in_float64() -> None:
    """Fixed point loses nothing that counts: against a heap on float64 sums, equal expected acceptance to 1e-8."""
    log_probs = torch.cat([gaussian(scale)(200, 7, 8) for scale in (0.5, 2.0, 5.0)])
    trees = TreeBuilder(7, 8, 32)(log_probs, token_ids(600, 7, 8), torch.arange(600))
    for row, values in enumerate(log_probs.double().tolist()):
        mine = [
            sum(values[position][rank] for position, rank in enumerate(path))
            for path in paths_of(trees, row)[1:]
        ]
        best = [
            sum(values[position][rank] for position, rank in enumerate(path))
            for path in _float_heap(values, 32)
        ]
        assert sum(map(math.exp, mine)) == pytest.approx(sum(map(math.exp, best)), abs=1e-8)


def _float_heap(values: list[list[float]], budget: int) -> list[Ranks]:
    heap: list[tuple[float, Ranks]] = [(-values[0][0], (0,))]
    popped: list[Ranks] = []
    while len(popped) < budget:
        cost, ranks = heapq.heappop(heap)
        popped.append(ranks)
        row = values[len(ranks) - 1]
        if ranks[-1] + 1 < len(row):
            heapq.heappush(heap, (cost + row[ranks[-1]] - row[ranks[-1] + 1], (*ranks[:-1], ranks[-1] + 1)))
        if len(ranks) < len(values):
            heapq.heappush(heap, (cost - values[len(ranks)][0], (*ranks, 0)))
    return popped


def test_the_chain_is_cut_by_an_unsure_drafter_and_kept_by_the_seed() -> None:
    log_probs, ids, roots = gaussian(0.3)(1, 7, 8), token_ids(1, 7, 8), torch.tensor([0])
    chain = [(0,) * depth for depth in range(8)]
    assert not set(chain) <= set(paths_of(TreeBuilder(7, 8, 32)(log_probs, ids, roots), 0))
    assert set(chain) <= set(paths_of(TreeBuilder(7, 8, 32, chain_seed=True)(log_probs, ids, roots), 0))


def test_inputs_stay_as_they_are() -> None:
    log_probs, ids, roots = gaussian(2.0)(3, 7, 8), token_ids(3, 7, 8), torch.arange(3)
    before = [part.clone() for part in (log_probs, ids, roots)]
    TreeBuilder(7, 8, 32)(log_probs, ids, roots)
    assert all(torch.equal(one, other) for one, other in zip((log_probs, ids, roots), before, strict=True))


@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize("shape", [(16, 8, 1024), (31, 2, 64), (63, 8, 48), (7, 64, 1024)], ids=str)
def test_large_shapes_have_keys_enough(shape: tuple[int, int, int], chain_seed: bool) -> None:
    """Longest paths at the highest cost, where keys come closest to their limit."""
    length, topk, budget = shape
    log_probs = torch.full((1, length, topk), -INF)
    log_probs[0, :, 0] = -60.0
    trees = TreeBuilder(length, topk, budget, chain_seed)(
        log_probs, token_ids(1, length, topk), torch.tensor([0])
    )
    assert paths_of(trees, 0)[1:] == best_first(exact_costs(log_probs[0].tolist()), budget, chain_seed)


@pytest.mark.parametrize("shape", [(0, 8, 32), (7, 0, 32), (7, 8, 0)])
def test_impossible_shapes_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TreeBuilder(*shape)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("shape", [(7, 8, 32), (15, 8, 256)], ids=str)
def test_a_captured_graph_replays_other_trees(shape: tuple[int, int, int]) -> None:
    length, topk, budget = shape
    builder = TreeBuilder(length, topk, budget, device="cuda")
    values, ids, roots = (
        gaussian(2.0)(4, length, topk).cuda(),
        token_ids(4, length, topk).cuda(),
        torch.arange(4).cuda(),
    )
    builder(values, ids, roots)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = builder(values, ids, roots)
    for _ in range(5):
        values.copy_(gaussian(2.0)(4, length, topk))
        graph.replay()
        for one, other in zip(captured, builder(values, ids, roots), strict=True):
            assert torch.equal(one, other)
