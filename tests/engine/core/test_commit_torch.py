"""The commit plan: every slot kept or freed exactly once, in path order, over a whole serving run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ddtool.engine.core.commit import keep, path_rows

pytestmark = pytest.mark.engine


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Tensor, list[int], Tensor, Tensor]:
    """(nodes [bs, L + 1], counts, slots [bs, W], seq_lens) as a walk may leave them."""
    batch, length = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    width = draw(st.integers(2, 12))
    nodes, counts = [], []
    for _ in range(batch):
        steps = draw(st.integers(0, min(length, width - 1)))
        path = [0, *sorted(draw(st.permutations(range(1, width)))[:steps])]
        nodes.append(path + [path[-1]] * (length + 1 - len(path)))
        counts.append(draw(st.integers(0, len(path))))
    slots = draw(st.permutations(range(100, 100 + batch * width)))
    seq_lens = draw(st.lists(st.integers(0, 5000), min_size=batch, max_size=batch))
    return (
        torch.tensor(nodes),
        counts,
        torch.tensor(slots).view(batch, width),
        torch.tensor(seq_lens, dtype=torch.int32),
    )


@settings(deadline=None, max_examples=300)
@given(rounds())
def test_every_slot_is_kept_or_freed_and_the_kept_stand_in_path_order(
    case: tuple[Tensor, list[int], Tensor, Tensor],
) -> None:
    nodes, counts, slots, seq_lens = case
    before = slots.clone(), seq_lens.clone()
    kept = keep(nodes, torch.tensor(counts), slots, seq_lens)
    expected = [(row, node) for row, count in enumerate(counts) for node in nodes[row, :count].tolist()]
    assert kept.slots[: sum(counts)].tolist() == [slots[row, node] for row, node in expected]
    assert sorted(kept.slots.tolist()) == sorted(slots.flatten().tolist())
    assert kept.counts.tolist() == counts
    assert kept.seq_lens.tolist() == [
        length + count for length, count in zip(seq_lens.tolist(), counts, strict=True)
    ]
    assert kept.seq_lens.dtype == seq_lens.dtype
    assert torch.equal(slots, before[0])
    assert torch.equal(seq_lens, before[1])


def test_a_pool_is_whole_again_after_hundreds_of_rounds() -> None:
    """A free list, two requests, random trees and paths: what is neither free nor held has leaked."""
    generator = torch.Generator().manual_seed(5)
    width, length = 9, 4
    free, held = list(range(4000)), [[], []]  # type: list[int], list[list[int]]
    seq_lens = torch.tensor([0, 0])
    for _ in range(300):
        slots = torch.tensor([[free.pop() for _ in range(width)] for _ in range(2)])
        steps = torch.randint(0, length + 1, (2,), generator=generator)
        paths = [
            [0, *sorted((torch.randperm(width - 1, generator=generator)[:step] + 1).tolist())]
            for step in steps
        ]
        nodes = torch.tensor([path + [path[-1]] * (length + 1 - len(path)) for path in paths])
        counts = steps + 1
        kept, total = keep(nodes, counts, slots, seq_lens), int(counts.sum())
        for row, own in enumerate(kept.slots[:total].split(counts.tolist())):
            held[row] += own.tolist()
            assert slots[row, 0] == own[0]
        free += kept.slots[total:].tolist()
        seq_lens = kept.seq_lens
        assert [len(slots) for slots in held] == seq_lens.tolist()
        assert sorted([*free, *held[0], *held[1]]) == list(range(4000))
        if len(free) < 1000:
            free += held[0] + held[1]
            held, seq_lens = [[], []], torch.tensor([0, 0])


def test_hidden_rows_stand_in_path_order_and_a_short_path_repeats_its_end() -> None:
    nodes = torch.tensor([[0, 4, 2, 2], [0, 0, 0, 0], [0, 1, 5, 8]])
    assert path_rows(nodes, 9).tolist() == [0, 4, 2, 2, 9, 9, 9, 9, 18, 19, 23, 26]
