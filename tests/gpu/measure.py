"""From completions to numbers: one pass over all prompts, and what several passes of an arm say together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from server import Completion, Server


@dataclass(frozen=True)
class Pass:
    """seconds: of all groups together. rounds: the target's forwards in them, requests of a group sharing theirs."""

    seconds: float
    rounds: int
    completions: list[Completion]

    @property
    def tokens(self) -> int:
        return sum(len(completion.ids) for completion in self.completions)


def one_pass(server: Server, prompts: Sequence[str], batch: int, tokens: int, temperature: float) -> Pass:
    """All prompts once, `batch` at a time."""
    seconds, rounds, completions = 0.0, 0, []
    for first in range(0, len(prompts), batch):
        start = time.perf_counter()
        group = server.generate(prompts[first : first + batch], tokens, temperature)
        seconds += time.perf_counter() - start
        rounds += max(completion.rounds for completion in group)
        completions += group
    return Pass(seconds, rounds, completions)


def summary(passes: Sequence[Pass], prefill_seconds: float) -> dict[str, Any]:
    """Medians over passes. A round's time excludes prefill; tok/s includes it, as a user waits for it."""
    speeds = [one.tokens / one.seconds for one in passes]
    rounds_ms = [1000 * (one.seconds - prefill_seconds) / one.rounds for one in passes if one.rounds]
    every = [completion for one in passes for completion in one.completions]
    verified = sum(len(one.ids) / one.accept_length for one in every)
    return {
        "tok_s": round(median(speeds), 2),
        "tok_s_all": [round(speed, 2) for speed in speeds],
        "ms_per_round": round(median(rounds_ms), 4) if rounds_ms else None,
        "ms_per_round_all": [round(one, 4) for one in rounds_ms],
        "prefill_ms": round(1000 * prefill_seconds, 2),
        "rounds": sum(one.rounds for one in passes),
        "accept_length": round(sum(len(one.ids) for one in every) / verified, 4),
        "accept_length_by_request": [round(one.accept_length, 3) for one in passes[0].completions],
    }


def divergences(
    prompts: Sequence[str], expected: Sequence[Completion], found: Sequence[Completion], judge: Server | None
) -> list[dict[str, Any]]:
    """Where each output first differs from plain decoding's. `judge`: a plain server that says how near the tie was."""
    listed = []
    for number, (prompt, one, other) in enumerate(zip(prompts, expected, found, strict=True)):
        differs = [at for at, (a, b) in enumerate(zip(one.ids, other.ids, strict=False)) if a != b]
        if differs:
            at = differs[0]
            entry: dict[str, Any] = {
                "prompt": number,
                "position": at,
                "plain": one.ids[at],
                "found": other.ids[at],
            }
            if judge is not None:
                entry |= tie(judge, prompt, one.ids[:at], entry["found"])
            listed.append(entry)
    return listed


def tie(judge: Server, prompt: str, prefix: Sequence[int], found: int) -> dict[str, Any]:
    """How far apart the target's two best tokens are there; log-probabilities differ as logits do."""
    ids = judge.post("/tokenize", {"prompt": prompt})["tokens"] + list(prefix)
    sampling = {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, "top_logprobs_num": 2}
    (best, _), (second, token) = [
        entry[:2] for entry in [*judge.post("/generate", body)["meta_info"]["output_top_logprobs"][0]]
    ][:2]
    return {"top2_gap": round(best - second, 5), "second": token, "is_second": token == found}
