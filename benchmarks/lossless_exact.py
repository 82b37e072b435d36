"""Answers at T = 1 held against the target's exact probabilities, token by token: no second sample, so no noise of one.

    python3 benchmarks/lossless_exact.py --pair DIR docs/results/2026-11-30-lossless-t1/answers.jsonl

For each engine and position in the answer: `z`, how many standard deviations the summed log-probability of its tokens
lies above what exact draws have on average (a temperature below 1 raises it), and `ks`, the p-value of a
Kolmogorov-Smirnov test that each token's place in its distribution, likeliest first, is uniform. Float32; needs torch,
tokenizers and scipy.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from lossless_power import TOKENS, Ids, Pair
from scipy.stats import kstest
from tokenizers import Tokenizer

Seen = tuple[float, float, float]


def seen(pair: Pair, ids: Ids, token: int, number: float) -> Seen:
    """The token's log-probability less a draw's average, the variance of one, and the token's place in 0 to 1."""
    sums = torch.tensor(pair.sums(ids, 1.0), dtype=torch.float64)
    probabilities = sums.diff(prepend=torch.zeros(1, dtype=torch.float64)).clamp_min(1e-300)
    logs = probabilities.log()
    mean = float(probabilities @ logs)
    likelier = float(probabilities[probabilities > probabilities[token]].sum())
    place = likelier + number * float(probabilities[token])
    return float(logs[token]) - mean, float(probabilities @ logs**2) - mean**2, place


def judged(
    pair: Pair, prompts: Mapping[str, Ids], answers: Mapping[str, Sequence[Sequence[int]]]
) -> list[dict[str, float]]:
    rng = random.Random(0)
    by_position: list[list[Seen]] = [[] for _ in range(TOKENS)]
    for prompt, each in answers.items():
        for answer in each:
            ids = prompts[prompt]
            for position, token in enumerate(answer):
                by_position[position].append(seen(pair, ids, token, rng.random()))
                ids = (*ids, token)
    return [
        {
            "z": round(sum(one[0] for one in found) / math.sqrt(sum(one[1] for one in found)), 2),
            "ks": round(float(kstest([one[2] for one in found], "uniform").pvalue), 4),
        }
        for found in by_position
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/ and draft/")
    parser.add_argument(
        "answers", type=Path, help='JSON lines: {"engine", "answers": {prompt: [[token, …], …]}}'
    )
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    pair = Pair(options.pair)
    tokenizer = Tokenizer.from_file(str(options.pair / "target" / "tokenizer.json"))
    for line in options.answers.read_text().splitlines():
        told = json.loads(line)
        prompts = {prompt: tuple(tokenizer.encode(prompt).ids) for prompt in told["answers"]}
        found = judged(pair, prompts, told["answers"])
        print(json.dumps({"engine": told["engine"], "positions": found}), flush=True)


if __name__ == "__main__":
    main()
