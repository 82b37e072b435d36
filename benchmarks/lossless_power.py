"""What `bench --lossless` at T = 1 can see, simulated: how often a wrong engine is called different.

    python3 benchmarks/lossless_power.py --pair DIR [--plain 400] [--arm 25 50 100 200] [--trials 200]

Answers are drawn from the target's exact probabilities, in float32, with torch and tokenizers only; their first token
is always drawn rightly, because it comes from prefill. The prompts are those of tests/engine/test_bench_sampled.py.
"""

from __future__ import annotations

import argparse
import json
import random
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from chain_seed import TOPK, Layers, drafts
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import linear

from ddtool.bench import distribution
from ddtool.engine.core.trees import TreeBuilder

PROMPTS = ["    def __init__(self, ", "if __name__ ==", "except Exception", "while True:\n"]
TOKENS, BUDGET = 4, 32
SPLITS = 199  # of the product's 999, for speed: p is coarser, and the power a little less
Ids = tuple[int, ...]


class Pair:
    """A target and its drafter, asked about one text at a time and remembering what they said."""

    def __init__(self, folder: Path) -> None:
        self.target, self.drafter = Layers(folder / "target", "model."), Layers(folder / "draft", "model.")
        self.taps = self.drafter.config["dflash_config"]["target_layer_ids"]
        self.builder = TreeBuilder(self.drafter.config["block_size"] - 1, TOPK, BUDGET, False)
        self.sums, self.tree = cache(self._sums), cache(self._tree)

    def _states(self, ids: Ids) -> tuple[Tensor, Tensor]:
        """The last layer's output, and the tapped ones side by side."""
        positions = torch.arange(len(ids))
        mask = positions[:, None] >= positions
        empty = torch.empty(0, self.target.kv_heads, self.target.dim)
        x, states = self.target.weights["embed_tokens.weight"][torch.tensor(ids)], []
        for layer in range(self.target.depth):
            x, _ = self.target.layer(x, layer, positions, (empty, empty), mask)
            states.append(x)
        return x, torch.cat([states[tap] for tap in self.taps], -1)

    def _sums(self, ids: Ids, temperature: float) -> list[float]:
        """Running sums of the next token's probabilities."""
        last = self.target.norm(self._states(ids)[0][-1:], "norm")
        logits = linear(last, self.target.weights["lm_head.weight"])[0].double()
        return (logits / temperature).softmax(-1).cumsum(-1).tolist()

    def _tree(self, ids: Ids) -> dict[tuple[int, int], int]:
        """Of a round that begins behind `ids`: (a node's row, a token) → the row of that child."""
        logprobs, choices = drafts(self.drafter, self.target, [*ids], self._states(ids[:-1])[1], len(ids) - 1)
        grown = self.builder(logprobs, choices, torch.tensor([ids[-1]]))
        pairs = zip(grown.parents[0].tolist(), grown.tokens[0].tolist(), strict=True)
        return {pair: row for row, pair in enumerate(pairs)}


def draw(pair: Pair, ids: Ids, number: float, temperature: float = 1.0) -> int:
    sums = pair.sums(ids, temperature)
    return min(bisect_right(sums, number * sums[-1]), len(sums) - 1)


def cooler(pair: Pair, prompt: Ids, rng: random.Random, temperature: float) -> list[int]:
    """An answer of an engine that draws at another temperature than it was asked for. 1: a right one."""
    ids = (*prompt, draw(pair, prompt, rng.random()))
    while len(ids) < len(prompt) + TOKENS:
        ids = (*ids, draw(pair, ids, rng.random(), temperature))
    return [*ids[len(prompt) :]]


def one_number(pair: Pair, prompt: Ids, rng: random.Random) -> list[int]:
    """An answer of an engine that draws the tokens at all nodes of a round's tree with the same random number."""
    ids = (*prompt, draw(pair, prompt, rng.random()))
    while len(ids) < len(prompt) + TOKENS:
        children, row, number = pair.tree(ids), 0, rng.random()
        while row is not None:
            token = draw(pair, ids, number)
            ids, row = (*ids, token), children.get((row, token))
    return [*ids[len(prompt) : len(prompt) + TOKENS]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/ and draft/")
    parser.add_argument("--plain", type=int, default=400, help="answers of plain decoding to each prompt")
    parser.add_argument("--arm", type=int, nargs="+", default=[25, 50, 100, 200], help="answers of the arm")
    parser.add_argument("--pool", type=int, default=2000, help="answers to draw these from")
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    distribution.SPLITS, distribution.SHIFTS = SPLITS, ()
    pair, rng = Pair(options.pair), random.Random(1)
    tokenizer = Tokenizer.from_file(str(options.pair / "target" / "tokenizer.json"))
    prompts = {prompt: tuple(tokenizer.encode(prompt).ids) for prompt in PROMPTS}

    def pool(answer: Callable[[Ids], list[int]]) -> dict[str, list[list[int]]]:
        return {p: [answer(ids) for _ in range(options.pool)] for p, ids in prompts.items()}

    def at(temperature: float) -> dict[str, list[list[int]]]:
        return pool(lambda ids: cooler(pair, ids, rng, temperature))

    plain = at(1)
    engines = {"right": at(1), **{f"T = {t}": at(t) for t in (0.9, 0.8, 0.7)}}
    engines["one number"] = pool(lambda ids: one_number(pair, ids, rng))
    for count in options.arm:
        for engine, answers in engines.items():
            differs = 0
            for seed in range(options.trials):
                one = {p: rng.sample(plain[p], options.plain) for p in PROMPTS}
                other = {p: rng.sample(answers[p], count) for p in PROMPTS}
                differs += distribution.compare(one, other, seed=seed).differs
            told = {
                "plain": options.plain,
                "arm": count,
                "engine": engine,
                "differs": differs / options.trials,
            }
            print(json.dumps({**told, "trials": options.trials}), flush=True)


if __name__ == "__main__":
    main()
