"""`tune` simulates the engine's trees in plain Python: they must be the same trees, node for node and in order."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="tests/engine/core/test_environment.py demands torch in CI")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ddtool.bench.tune.experts import distinct, read_dump  # noqa: E402
from ddtool.bench.tune.trees import Draft, best_first, chain_takes, exact_costs, needs  # noqa: E402
from ddtool.engine.core.trees import TreeBuilder  # noqa: E402
from ddtool.engine.core.walk import accept  # noqa: E402

pytestmark = pytest.mark.engine
BUILDERS = {
    shape: TreeBuilder(*shape) for shape in [(7, 8, 32), (7, 8, 64), (7, 4, 12), (3, 2, 14), (7, 8, 7)]
}


def drafts(seed: int, length: int, topk: int, coarse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [L, K], many of them equal when `coarse`, and ids, different along K."""
    dice = torch.Generator().manual_seed(seed)
    logits = torch.randn(length, 50, generator=dice) * 3
    if coarse:
        logits = logits.round()
    best = logits.log_softmax(-1).topk(topk)
    return best.values, best.indices


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(0, 10**6), st.booleans())
def test_the_same_nodes_in_the_same_order(shape, seed, coarse):
    length, topk, budget = shape
    values, ids = drafts(seed, length, topk, coarse)
    trees = BUILDERS[shape](values[None], ids[None], torch.tensor([0]))
    paths: list[tuple[int, ...]] = [()]
    for parent, rank in zip(trees.parents[0, 1:].tolist(), trees.ranks[0, 1:].tolist(), strict=True):
        if parent >= 0:
            paths.append((*paths[parent], rank))
    assert list(best_first(exact_costs(values.tolist()), budget)) == paths[1:]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(0, 10**6), st.booleans())
def test_the_same_tokens_are_taken(shape, seed, coarse):
    """The target says, at each node, the text's next token if the node is on the text, else anything."""
    length, topk, budget = shape
    values, ids = drafts(seed, length, topk, coarse)
    dice = torch.Generator().manual_seed(seed + 1)
    ranks = torch.randint(0, 3, (length,), generator=dice).clamp(max=topk - 1)
    truth = ids.gather(1, ranks[:, None])[:, 0].tolist()
    trees = BUILDERS[shape](values[None], ids[None], torch.tensor([0]))
    choices = torch.tensor([[truth[depth] if depth < length else 0 for depth in trees.depths[0].tolist()]])
    _, lengths = accept(trees, choices, length)
    said = Draft(values.tolist(), ids.tolist())
    assert sum(need <= budget for need in needs(said, truth, topk, 64)) == int(lengths)
    if budget == length and not any(ranks.tolist()):
        assert chain_takes(said, truth) == length


def test_a_dump_of_sglangs_expert_recorder_is_read_without_torch(tmp_path):
    """As `_DetailAccumulator.dump` of 0.5.12 and 0.5.13 writes it; rows behind a view's offset and stride as well."""
    wide = torch.arange(2 * 6 * 8, dtype=torch.int32).view(2, 6, 8)
    narrow = wide[:, :3, :]
    records = [
        {
            "forward_pass_id": number,
            "rank": 0,
            "gatherer_key": "primary",
            "input_ids": [1] * topk_ids.shape[1],
            "positions": [0],
            "extend_seq_lens": None,
            "forward_mode": 3,
            "topk_ids_of_layer": topk_ids,
            "misc_objects": [],
            "global_physical_count": torch.zeros(2, 384, dtype=torch.int32),
        }
        for number, topk_ids in enumerate((wide, narrow, wide + 1))
    ]
    path = tmp_path / "expert_distribution_recorder_1.0_0.pt"
    torch.save({"records": records, "last_physical_to_logical_map": torch.arange(384)}, path)
    assert read_dump(path, 6) == [wide.tolist(), (wide + 1).tolist()]
    assert read_dump(path, 3) == [narrow.tolist()]
    assert distinct(read_dump(path, 6), [1, 6]) == {1: 8, 6: 48}
