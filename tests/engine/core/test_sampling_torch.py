"""Draws against the exact law, and whole rounds against plain decoding: no parameter and no drafter tilts the text."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from ddtool.engine.core import sampling
from ddtool.engine.core.sampling import sample
from ddtool.engine.core.trees import TreeBuilder, Trees
from ddtool.engine.core.walk import accept

pytestmark = pytest.mark.engine

DRAWS = 200_000
ALL = 1 << 30  # SGLang's "no top-k"


def parameters(
    rows: int, temperature: float = 1.0, top_p: float = 1.0, top_k: int = ALL, min_p: float = 0.0
) -> dict[str, Tensor]:
    return {
        "temperatures": torch.full((rows,), temperature),
        "top_ps": torch.full((rows,), top_p),
        "top_ks": torch.full((rows,), top_k, dtype=torch.int32),
        "min_ps": torch.full((rows,), min_p),
    }


def exact_law(
    logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = ALL, min_p: float = 0.0
) -> np.ndarray:
    """The distribution of one row by the definitions, in float64: logits [V] → [V]."""
    weights = np.exp((logits.double().numpy() - float(logits.max())) / temperature)
    probs = weights / weights.sum()
    before, law = 0.0, np.zeros_like(probs)
    for place, token in enumerate(np.argsort(-probs, kind="stable")):
        if place < top_k and before <= top_p and probs[token] >= min_p * probs.max():
            law[token] = probs[token]
        before += probs[token]
    return law / law.sum()


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    """Chi-square; cells too small to expect 5 are pooled."""
    expected = law * counts.sum()
    assert counts[law == 0].sum() == 0, "drew what has probability 0"
    small = expected < 5
    observed = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    keep = expected > 0
    return float(stats.chisquare(observed[keep], expected[keep], sum_check=False).pvalue)


CASES = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.5},
    {"top_p": 0.8},
    {"top_k": 5},
    {"min_p": 0.1},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
    {"temperature": 1.5, "top_p": 0.95, "top_k": 12, "min_p": 0.05},
    {"top_p": 0.0},
]


@pytest.mark.parametrize("vocabulary", [40, 1300])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_draws_follow_the_law(case: dict[str, float], vocabulary: int) -> None:
    """Evenly spread uniforms: each token's share is its probability, to one draw in either direction."""
    torch.manual_seed(4)
    logits = 2 * torch.randn(vocabulary)
    rows = 10_000
    uniforms = (torch.arange(rows) + 0.5) / rows
    drawn = torch.cat(
        [
            sample(logits.expand(len(part), -1), **parameters(len(part), **case), uniforms=part)
            for part in uniforms.split(2000)
        ]
    )
    law = exact_law(logits, **case)
    shares = np.bincount(drawn.numpy(), minlength=vocabulary) / rows
    assert np.abs(shares - law).max() <= 1.1 / rows + 1e-6


def test_without_filters_sorting_changes_nothing_but_the_order() -> None:
    torch.manual_seed(5)
    logits = torch.randn(1, 700).expand(4000, -1)
    uniforms = (torch.arange(4000) + 0.5) / 4000
    counts = [
        torch.bincount(
            sample(logits, **parameters(4000), uniforms=uniforms, filtered=filtered), minlength=700
        )
        for filtered in (True, False)
    ]
    assert (counts[0] - counts[1]).abs().max() <= 1


@pytest.mark.parametrize("filtered", [False, True])
def test_a_token_of_probability_zero_is_never_drawn(filtered: bool) -> None:
    logits = torch.full((3000, 1100), -math.inf)
    allowed = torch.tensor([3, 511, 512, 1023, 1024])
    logits[:, allowed] = torch.randn(3000, 5) * 3
    ends = torch.tensor([0.0, 1e-38, 0.5, 1 - 2**-24])
    for uniforms in (torch.rand(3000), *ends[:, None].expand(-1, 3000)):
        drawn = sample(logits, **parameters(3000), uniforms=uniforms, filtered=filtered)
        assert torch.isin(drawn, allowed).all()


def test_greedy_rows_are_the_argmax_whatever_the_others_are() -> None:
    torch.manual_seed(6)
    logits = torch.randint(0, 4, (300, 50)).float()  # ties in every row
    settings = parameters(300)
    settings["temperatures"][::3] = 0.0
    settings["top_ks"][1::3] = 1
    drawn = sample(logits, **settings, uniforms=torch.rand(300))
    greedy = torch.arange(300) % 3 < 2
    assert torch.equal(drawn[greedy], logits.argmax(-1)[greedy])
    assert not torch.equal(drawn[~greedy], logits.argmax(-1)[~greedy])


@pytest.mark.parametrize("filtered", [False, True])
def test_a_temperature_near_zero_is_greedy(filtered: bool) -> None:
    torch.manual_seed(7)
    logits = torch.randn(2000, 80).bfloat16()
    gap = logits.topk(2).values.diff().abs().flatten() > 0.02
    drawn = sample(logits, **parameters(2000, temperature=1e-4), uniforms=torch.rand(2000), filtered=filtered)
    assert torch.equal(drawn[gap], logits.argmax(-1)[gap])


def test_same_uniforms_same_tokens_in_any_batch() -> None:
    torch.manual_seed(8)
    logits, uniforms, settings = torch.randn(64, 900), torch.rand(64), parameters(64, 0.9, 0.9, 100, 0.01)
    whole = sample(logits, **settings, uniforms=uniforms)
    for rows in torch.randperm(64).split(7):
        part = sample(
            logits[rows], **{name: value[rows] for name, value in settings.items()}, uniforms=uniforms[rows]
        )
        assert torch.equal(part, whole[rows])


class Language:
    """A target whose next token depends on the last two, and a drafter that is wrong about it in its own way."""

    vocabulary, length, topk, budget = 6, 4, 3, 9

    def __init__(self) -> None:
        torch.manual_seed(11)
        size = self.vocabulary
        self.logits = 1.5 * torch.randn(size, size, size)
        self.builder = TreeBuilder(self.length, self.topk, self.budget)
        self.drafter = 2 * torch.randn(size, self.length, size)

    def plain(self, first: int, second: int, count: int, **case: float) -> np.ndarray:
        """The exact joint law of the next `count` tokens."""
        states = {((), first, second): 1.0}
        for _ in range(count):
            grown: dict[tuple[tuple[int, ...], int, int], float] = {}
            for (text, one, two), probability in states.items():
                for token, share in enumerate(exact_law(self.logits[one, two], **case)):
                    grown[(*text, token), two, token] = probability * share
            states = grown
        law = np.zeros((self.vocabulary,) * count)
        for (text, _, _), probability in states.items():
            law[text] = probability
        return law.flatten()

    def one_round(self, previous: Tensor, last: Tensor, **case: float) -> tuple[Tensor, Tensor]:
        """Texts ending in (previous, last), [bs] each → tokens [bs, L + 1], how many of them count [bs]."""
        top = self.drafter[last].log_softmax(-1).topk(self.topk)
        trees = self.builder(top.values, top.indices, last)
        parents = trees.tokens.gather(1, trees.parents.clamp_min(0))
        before = torch.where(trees.depths == 0, previous[:, None], parents)
        logits = self.logits[before, trees.tokens].flatten(0, 1)
        rows = len(logits)
        drawn = sample(logits, **parameters(rows, **case), uniforms=torch.rand(rows), filtered=len(case) > 1)
        choices = drawn.view(len(last), -1)
        nodes, lengths = accept(trees, choices, self.length)
        return choices.gather(1, nodes), lengths + 1

    def decode(self, first: int, second: int, count: int, **case: float) -> np.ndarray:
        """How often each text of `count` tokens comes out of DRAWS runs of rounds."""
        counts = np.zeros(self.vocabulary**count, dtype=np.int64)
        for _ in range(0, DRAWS, 40_000):
            text = self._texts(40_000, first, second, count, **case)
            code = sum(text[:, step] * self.vocabulary ** (count - 1 - step) for step in range(count))
            counts += np.bincount(code.numpy(), minlength=len(counts))
        return counts

    def _texts(self, runs: int, first: int, second: int, count: int, **case: float) -> Tensor:
        """[runs, count] tokens. All runs go on until the last one has enough: a full batch in every round."""
        text = torch.zeros(runs, count + 1, dtype=torch.int64)  # the last column takes what is too much
        previous, last = torch.full((runs,), first), torch.full((runs,), second)
        done = torch.zeros(runs, dtype=torch.int64)
        while (done < count).any():
            tokens, emitted = self.one_round(previous, last, **case)
            steps = torch.arange(tokens.shape[1])
            place = torch.where(steps < emitted[:, None], done[:, None] + steps, count).clamp_max(count)
            text.scatter_(1, place, tokens)
            done += emitted
            both = torch.cat([last[:, None], tokens], 1)
            previous, last = (
                both.gather(1, emitted[:, None] - 1).squeeze(1),
                both.gather(1, emitted[:, None]).squeeze(1),
            )
        return text[:, :count]


@pytest.mark.parametrize(
    "case",
    [
        {"temperature": 0.5},
        {"temperature": 0.7},
        {"temperature": 1.0},
        {"temperature": 1.5},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 1.0, "min_p": 0.2, "top_p": 0.95},
    ],
    ids=str,
)
def test_rounds_emit_what_plain_decoding_emits(case: dict[str, float]) -> None:
    """Joint law of three tokens: 216 cells, 200,000 texts."""
    language = Language()
    assert p_value(language.decode(2, 4, 3, **case), language.plain(2, 4, 3, **case)) > 1e-3


def accept_only_the_chain(
    trees: Trees, choices: Tensor, length: int, whole: Callable[..., tuple[Tensor, Tensor]] = accept
) -> tuple[Tensor, Tensor]:
    nodes, lengths = whole(trees, choices, length)
    on_chain = (trees.ranks.gather(1, nodes) == 0).all(1)
    return torch.where(on_chain[:, None], nodes, 0), torch.where(on_chain, lengths, 0)


def test_and_the_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ways to be wrong, each far outside what chance allows."""
    language = Language()
    right = language.plain(2, 4, 3)
    assert p_value(language.decode(2, 4, 3, temperature=1.05), right) < 1e-6

    with monkeypatch.context() as patch:  # one uniform for all nodes of a tree
        draw = torch.rand
        patch.setattr(torch, "rand", lambda rows: draw(rows // 10).repeat_interleave(10))
        assert p_value(language.decode(2, 4, 3), right) < 1e-6

    with monkeypatch.context() as patch:  # weights rounded to steps of 5 %
        exact = sampling._draw
        patch.setattr(sampling, "_draw", lambda weights, u: exact((weights * 20).round(), u))
        assert p_value(language.decode(2, 4, 3), right) < 1e-6

    with (
        monkeypatch.context() as patch
    ):  # paths are cut because of a token behind the cut, which is drawn anew
        patch.setitem(Language.one_round.__globals__, "accept", accept_only_the_chain)
        assert p_value(language.decode(2, 4, 3), right) < 1e-6


def test_temperature_zero_gives_the_greedy_text() -> None:
    language = Language()
    previous, last = torch.tensor([1]), torch.tensor([3])
    text: list[int] = []
    while len(text) < 60:
        tokens, count = language.one_round(previous, last, temperature=0.0)
        text += tokens[0, : count[0]].tolist()
        both = [3, *text]
        previous, last = torch.tensor([both[-2]]), torch.tensor([both[-1]])
    one, two = 1, 3
    for token in text:
        assert token == language.logits[one, two].argmax()
        one, two = two, token
