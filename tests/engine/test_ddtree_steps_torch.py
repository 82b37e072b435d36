"""Steps as graphs do what the same steps do when they are called: on a CPU, with graphs that are played by hand.

A played graph runs its call again on every replay and leaves the result in the tensors of the first run, as a CUDA
graph does; and like one it reads only memory that it knew at capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="tests/engine/core/test_environment.py demands torch in CI")

from ddtool.engine.v1 import graphs, steps  # noqa: E402
from ddtool.engine.v1.arguments import TreeShape  # noqa: E402
from ddtool.engine.v1.arrival import Arrival  # noqa: E402
from ddtool.engine.v1.head import ShardedTopK  # noqa: E402
from ddtool.engine.v1.mask import MaskBuffer  # noqa: E402

pytestmark = pytest.mark.engine

SHAPE = TreeShape(block=5, budget=12, topk=4, chain_seed=False)
HIDDEN, VOCAB, FEATURES, LARGEST = 16, 50, 6, 4


class Played:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self.result, self.replays = call, call(), 0

    def replay(self) -> None:
        self.replays += 1
        for ours, fresh in zip(tensors(self.result), tensors(self._call()), strict=True):
            ours.copy_(fresh)


def tensors(result: Any) -> Iterator[Any]:
    for part in () if result is None else result if isinstance(result, tuple) else (result,):
        yield from tensors(part) if isinstance(part, tuple) else [part]


class Context:
    """The drafter's memory: remembers what it was given, in the order of slots."""

    features, dtype = FEATURES, torch.float32

    def __init__(self) -> None:
        self.memory = torch.zeros(1000, FEATURES + 1)

    def absorb(self, hidden: Any, positions: Any, slots: Any) -> None:
        self.memory[slots] = torch.cat([hidden, positions[:, None].float()], 1)


class Repeating:
    """A group of two ranks that say the same of the same columns: what is gathered is one rank's part twice."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size

    def all_gather_into_tensor(self, output: Any, sent: Any) -> None:
        output.copy_(sent.repeat(self.world_size, 1))


def make(
    ranks: int, graphs_up_to: int, every_token: bool = False
) -> tuple[steps.TreeSteps, MaskBuffer, Context]:
    weight = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(1))
    shard = SimpleNamespace(
        num_org_elements=VOCAB,
        num_org_elements_padded=VOCAB,
        num_added_elements=0,
        org_vocab_start_index=0,
        added_vocab_start_index=VOCAB,
    )
    head = ShardedTopK(SimpleNamespace(weight=weight, shard_indices=shard), SHAPE.topk, Repeating(ranks))
    mask, context = MaskBuffer(SHAPE.width, "cpu", torch.ones(20000, dtype=torch.uint8)), Context()
    made = steps.TreeSteps(SHAPE, head, mask, context, graphs_up_to=graphs_up_to, every_token=every_token)
    return made, mask, context


def rounds(made: tuple[steps.TreeSteps, MaskBuffer, Context]) -> list[Any]:
    """Some rounds of batches that grow and shrink; everything that came out of them."""
    taken, mask, context = made
    generator = torch.Generator().manual_seed(7)
    seen: list[Any] = []
    for size in (1, LARGEST, 2, 3, LARGEST, 1):
        lengths = torch.randint(1, 40, (size,), generator=generator)
        flat = mask.reserve(lengths.tolist())
        hidden = torch.randn(size, SHAPE.depth, HIDDEN, generator=generator)
        grown = taken.grow(hidden, torch.randint(0, VOCAB, (size,), generator=generator), lengths)
        # what the target says is mostly on the tree
        choice = grown.trees.tokens.roll(-1, 1).contiguous()
        slots = torch.randperm(1000, generator=generator)[: size * SHAPE.width].view(size, -1)
        followed = taken.follow(grown, choice, slots, lengths)
        taken.absorb(torch.randn(size * SHAPE.width, FEATURES, generator=generator), followed)
        parts = (*tensors(grown), *tensors(followed), *squares(flat, lengths.tolist()), context.memory)
        seen += [part.clone() for part in parts]
    return seen


def squares(flat: Any, lengths: list[int]) -> Iterator[Any]:
    """Of the mask what the kernel reads."""
    for length in lengths:
        size = SHAPE.width * (length + SHAPE.width)
        yield flat[:size].view(SHAPE.width, -1)[:, length:]
        flat = flat[size:]


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    made: list[Played] = []

    def capture(call: Callable[[], Any], pool: Any) -> tuple[Played, Any]:
        played = Played(call)
        made.append(played)
        return played, played.result

    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(steps, "graph_pool", object)
    monkeypatch.setattr(steps, "accounted", lambda _: nullcontext())
    return made


@pytest.mark.parametrize("ranks", [1, 2])
def test_graphs_say_what_calls_say(captures: list[Played], ranks: int) -> None:
    expected = rounds(make(ranks, graphs_up_to=0))
    assert captures == []
    found = rounds(make(ranks, graphs_up_to=LARGEST))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("graphs_up_to", [0, LARGEST])
def test_for_a_trace_of_every_token_a_round_keeps_the_root_and_says_what_follows_it(
    captures: list[Played], graphs_up_to: int
) -> None:
    taken, mask, _ = make(1, graphs_up_to, every_token=True)
    lengths = torch.tensor([5, 9])
    mask.reserve(lengths.tolist())
    grown = taken.grow(torch.randn(2, SHAPE.depth, HIDDEN), torch.tensor([3, 4]), lengths)
    slots = torch.arange(2 * SHAPE.width).view(2, -1)
    # the first node would be accepted, were it not for the trace
    choice = grown.trees.tokens.roll(-1, 1).contiguous()
    followed = taken.follow(grown, choice, slots, lengths)
    assert followed.bonus.tolist() == choice[:, 0].tolist()
    assert followed.gained[:, -1].tolist() == [0, 0]
    assert followed.kept.seq_lens.tolist() == [6, 10]
    assert followed.kept.slots[:2].tolist() == slots[:, 0].tolist()


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_graphs_exist_before_the_first_round_and_the_largest_was_first(
    captures: list[Played], ranks: int
) -> None:
    made = make(ranks, graphs_up_to=LARGEST)
    steps_of_a_round = 3 if ranks == 1 else 4  # what the ranks gather splits growing in two
    assert len(captures) == steps_of_a_round * LARGEST
    sizes = [len(next(tensors(played.result))) for played in captures[:LARGEST]]
    assert sizes == sorted(sizes, reverse=True)
    rounds(made)
    assert len(captures) == steps_of_a_round * LARGEST
    assert sum(played.replays for played in captures) == steps_of_a_round * 6


def test_batches_beyond_the_graphs_and_masks_that_do_not_fit_are_called(captures: list[Played]) -> None:
    made = make(1, graphs_up_to=2)
    found = rounds(made)
    for one, other in zip(found, rounds(make(1, graphs_up_to=0)), strict=True):
        assert torch.equal(one, other)
    before = sum(played.replays for played in captures)
    assert before == 3 * 3
    taken, mask, _ = made
    mask.reserve([2000])
    taken.grow(torch.zeros(1, SHAPE.depth, HIDDEN), torch.zeros(1, dtype=torch.int64), torch.tensor([2000]))
    assert sum(played.replays for played in captures) == before


def test_what_arrives_is_what_was_sent_last() -> None:
    arrival = Arrival(4, 3, "cpu")
    arrival.start(torch.arange(12).view(4, 3))
    assert arrival.wait() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    arrival.start(torch.tensor([[7, 7, 7]]))
    assert arrival.wait() == [[7, 7, 7]]
