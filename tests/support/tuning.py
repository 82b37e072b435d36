"""A machine whose truth is known: texts with drafts, and a server that serves them at a given cost a round.

The server is played round by round, with noise, on its own: nothing here is shared with what `tune` predicts by.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ddtool.agent.load_events import digest
from ddtool.bench import records
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.rounds import shape_of, width_of
from ddtool.bench.tune.trace import Text
from ddtool.bench.tune.trees import Draft

BLOCK, TOPK, VOCAB, MOST = 8, 8, 1000, 64
PREFILL_S = 0.020
PROMPT_TOKENS = 100
RoundMs = Callable[[int, int], float]  # (width, requests in the round) → milliseconds


def texts(
    seed: int, count: int = 16, tokens: int = 128, sharp: float = 0.7, spread: float = 0.15
) -> list[Text]:
    """Drafts that know themselves: a choice of probability p is right in p of all cases.

    sharp, spread: mean and deviation of the probability of a first choice; the rest is halved from choice to choice.
    """
    dice = random.Random(seed)
    return [_text(dice, tokens, sharp, spread) for _ in range(count)]


def _text(dice: random.Random, tokens: int, sharp: float, spread: float) -> Text:
    ids = [dice.randrange(VOCAB) for _ in range(tokens)]
    drafts = {}
    for root in range(tokens - 1):
        truth = [*ids[root + 1 : root + BLOCK], *(dice.randrange(VOCAB) for _ in range(BLOCK))][: BLOCK - 1]
        rows = [_row(dice, token, sharp, spread) for token in truth]
        drafts[root] = Draft([probs for probs, _ in rows], [choices for _, choices in rows])
    return Text(tuple(ids), drafts, PROMPT_TOKENS)


def _row(dice: random.Random, truth: int, sharp: float, spread: float) -> tuple[list[float], list[int]]:
    first = min(0.97, max(0.2, dice.gauss(sharp, spread)))
    probs = [first, *((1 - first) / 2**rank for rank in range(1, TOPK))]
    others = [token for token in dice.sample(range(VOCAB), TOPK + 1) if token != truth][:TOPK]
    (rank,) = dice.choices(range(TOPK + 1), [*probs, 1 - sum(probs)])
    if rank < TOPK:
        others[rank] = truth
    return [math.log(prob) for prob in probs], others


def trace_lines(found: Sequence[Text]) -> Iterator[str]:
    """As the engine writes them with `every-token`: one round a position, nothing accepted."""
    for number, text in enumerate(found):
        for root, draft in text.drafts.items():
            line = {
                "rid": f"r{number}",
                "round": root,
                "position": PROMPT_TOKENS + root,
                "root": text.ids[root],
                "logprobs": draft.logprobs,
                "ids": draft.ids,
                "path_ranks": [],
                "accepted": 0,
                "bonus": text.ids[root + 1],
            }
            yield json.dumps(line)


def traced_pass(found: Sequence[Text], cell: str) -> list[str]:
    """The traced pass's lines of `samples.jsonl`: one token a round."""
    name = {"pass": f"trace/{cell}/v0/r0", "attempt": 1}
    lines: list[dict[str, Any]] = [{"kind": "begin", **name, "unix": 2.0, "warm": "flushed"}]
    for number, text in enumerate(found):
        chunks = [[0.1 * count, count] for count in range(1, len(text.ids) + 1)]
        lines.append({"kind": "sample", **name, **sample(number, 0.0, chunks, text)})
    return [json.dumps(line) for line in [*lines, {"kind": "end", **name, "seconds": 60.0}]]


class Machine:
    """round_ms: what a round truly costs. noise: relative, of each round. tree_ms: what a tree costs beside a chain.

    forks: what its arms say in place of the traced text of a number, as greedy text in bfloat16 may.
    """

    def __init__(
        self,
        found: Sequence[Text],
        round_ms: RoundMs,
        noise: float = 0.02,
        seed: int = 1,
        tree_ms: float = 0.0,
        forks: Mapping[int, Text] | None = None,
    ) -> None:
        self.acceptance = Acceptance(found, MOST)
        said = [(forks or {}).get(number, text) for number, text in enumerate(found)]
        self._spoken = Acceptance(said, MOST) if forks else self.acceptance
        self._round_ms, self._noise, self._tree_ms = round_ms, noise, tree_ms
        self._dice = random.Random(seed)

    def passes(
        self, arms: Sequence[str], concurrencies: Sequence[int], repeats: int = 1
    ) -> list[records.Pass]:
        """All arms in turn, every repeat of every cell."""
        lines: list[Mapping[str, Any]] = []
        for repeat in range(repeats):
            for concurrency in concurrencies:
                for arm in arms:
                    lines += self._pass(arm, f"{arm}/code-c{concurrency}/v0/r{repeat}", concurrency)
        return records.read(lines).passes

    def lines(self, arms: Sequence[str], concurrencies: Sequence[int], repeats: int = 1) -> list[str]:
        """The same as `samples.jsonl`."""
        return [
            json.dumps(line)
            for repeat in range(repeats)
            for concurrency in concurrencies
            for arm in arms
            for line in self._pass(arm, f"{arm}/code-c{concurrency}/v0/r{repeat}", concurrency)
        ]

    def _pass(self, arm: str, name: str, concurrency: int) -> Iterator[dict[str, Any]]:
        shape = shape_of(arm, TOPK)
        assert shape is not None
        width = width_of(shape, BLOCK)
        overhead = 0.0 if shape.is_chain else self._tree_ms
        taken = self._spoken._taken(shape)
        gained = [gains(text, takes) for text, takes in zip(self._spoken.texts, taken, strict=True)]
        begun = {"pass": name, "attempt": 1}
        yield {"kind": "begin", **begun, "unix": 1.0, "server": {}, "warm": "flushed"}
        waiting, active, clock = list(range(len(gained))), {}, 0.0
        while waiting or active:
            while waiting and len(active) < concurrency:
                number = waiting.pop(0)
                sent, clock = clock, clock + PREFILL_S
                active[number] = (sent, [[clock - sent, 1]], list(gained[number]))
            round_ms = self._round_ms(width, len(active)) + overhead
            clock += round_ms / 1000 * self._dice.gauss(1, self._noise)
            for number, (sent, chunks, left) in list(active.items()):
                chunks.append([clock - sent, chunks[-1][1] + left.pop(0)])
                if not left:
                    del active[number]
                    yield {
                        "kind": "sample",
                        **begun,
                        **sample(number, sent, chunks, self._spoken.texts[number]),
                    }
        yield {"kind": "end", **begun, "seconds": clock, "gpu": None, "metrics": None}


def sample(number: int, sent: float, chunks: list[list[float]], text: Text) -> dict[str, Any]:
    return {
        "index": number,
        "prompt": f"{number:016x}",
        "sent_s": sent,
        "chunks": chunks,
        "e2e_s": chunks[-1][0],
        "prompt_tokens": PROMPT_TOKENS,
        "cached_tokens": 0,
        "completion_tokens": chunks[-1][1],
        "verify_ct": len(chunks) - 1,
        "finish": "length",
        "output": digest(" ".join(map(str, text.ids))),
        "status": 200,
        "error": None,
    }


def gains(text: Text, taken: Mapping[int, int]) -> list[int]:
    """Tokens of each round, from token to token."""
    end, root, found = len(text.ids) - 1, 0, []
    while root < end:
        found.append(min(taken[root] + 1, end - root))
        root += found[-1]
    return found
