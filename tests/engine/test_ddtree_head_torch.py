"""The sharded top-k head and the mask buffer, on tensors alone: ranks of a fake group, padding, ragged lengths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="tests/engine/core/test_environment.py demands torch in CI")

from ddtool.engine.v1.head import ShardedTopK  # noqa: E402
from ddtool.engine.v1.mask import MaskBuffer  # noqa: E402

pytestmark = pytest.mark.engine


class FakeGroup:
    """Ranks that run one after the other: the first pass collects what each sends, the second delivers it."""

    def __init__(self, world_size: int) -> None:
        self.world_size, self.sent = world_size, []

    def all_gather_into_tensor(self, output: Any, sent: Any) -> None:
        if len(self.sent) < self.world_size:
            self.sent.append(sent.clone())
        if len(self.sent) == self.world_size:
            output.copy_(torch.cat(self.sent))
        else:
            output.zero_()


def shards(weight: Any, ranks: int, padding: int, added: int = 0) -> list[Any]:
    """`weight` [V + added, H] as vocab-parallel heads: base rows split, each shard padded with rows of huge logits."""
    base = weight.shape[0] - added
    per_rank = -(-base // ranks)
    heads = []
    for rank in range(ranks):
        start, end = min(rank * per_rank, base), min((rank + 1) * per_rank, base)
        rows = [
            weight[start:end],
            weight.new_full((per_rank - (end - start) + padding, weight.shape[1]), 99.0),
        ]
        own_added = added if rank == 0 else 0
        rows.append(weight[base : base + own_added])
        indices = SimpleNamespace(
            num_org_elements=end - start,
            num_org_elements_padded=per_rank + padding,
            num_added_elements=own_added,
            org_vocab_start_index=start,
            added_vocab_start_index=base,
        )
        heads.append(SimpleNamespace(weight=torch.cat(rows), shard_indices=indices))
    return heads


@pytest.mark.parametrize(
    ("ranks", "vocab", "topk", "added"),
    [(1, 40, 8, 0), (2, 41, 8, 0), (4, 30, 8, 0), (8, 17, 8, 0), (2, 41, 8, 3)],
)
def test_every_rank_gets_the_whole_vocabularys_top_k(ranks, vocab, topk, added):
    """Also where a shard has fewer columns than K, and none of a shard's padding is ever a token."""
    torch.manual_seed(ranks)
    weight, hidden = torch.randn(vocab + added, 16), torch.randn(21, 16)
    expected, ids = torch.log_softmax(hidden @ weight.T, dim=-1).topk(topk)
    group = FakeGroup(ranks)
    heads = [ShardedTopK(head, topk, group) for head in shards(weight, ranks, padding=5, added=added)]
    for head in heads:
        head(hidden)
    for head in heads:
        found, found_ids = head(hidden)
        assert torch.equal(found_ids, ids)
        torch.testing.assert_close(found, expected)
        assert found.dtype == torch.float32


def test_equal_values_are_ordered_alike_on_every_rank():
    weight, hidden = torch.ones(32, 4), torch.ones(3, 4)
    group = FakeGroup(4)
    heads = [ShardedTopK(head, 6, group) for head in shards(weight, 4, padding=0)]
    for head in heads:
        head(hidden)
    answers = [head(hidden)[1] for head in heads]
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    assert all(len(set(row)) == 6 for row in answers[0].tolist())


def test_the_mask_is_written_where_the_kernel_reads_it():
    """FULL layout: W rows of seq_len + W per request. Grows, and keeps no bit of the round before."""
    width = 5
    buffer = MaskBuffer(width, "cpu")
    for lengths in ([3], [7, 1, 12], [2, 2]):
        visible = torch.rand(len(lengths), width, width) < 0.5
        flat = buffer.reserve(lengths)
        buffer.write(visible, torch.tensor(lengths, dtype=torch.int32))
        start = 0
        for row, length in enumerate(lengths):
            size = width * (length + width)
            square = flat[start : start + size].view(width, length + width)
            assert torch.equal(square[:, length:], visible[row])
            start += size
        assert start == flat.numel()
