"""A plain server as the judge of near ties: what it would have said next, and how sure it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ddtool.agent.prompt_ids import ids_of
from ddtool.bench.lossless import Ask
from ddtool.errors import DdtoolError

LIKELIEST = 8  # tokens asked for: more than two can tie
Post = Callable[[str, Mapping[str, Any]], Any]
"""(path, JSON body) → JSON answer of the plain server; raises when there is none."""


def judge(post: Post, prompts: Mapping[str, Mapping[str, Any]]) -> Ask:
    """prompts: by hash, `{"text": …}`, `{"messages": […]}` or `{"input_ids": […]}`.

    The judge raises DdtoolError for an answer without log-probabilities, as that of a DDTREE server.
    """

    @cache
    def ids(prompt: str) -> Sequence[int]:
        return ids_of(prompts[prompt], post)

    def ask(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        return likeliest(post("/generate", question([*ids(prompt), *said])))

    return ask


def question(ids: Sequence[int]) -> dict[str, Any]:
    """The body that asks for the likeliest tokens after `ids`."""
    sampling = {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}
    return {
        "input_ids": list(ids),
        "sampling_params": sampling,
        "return_logprob": True,
        "top_logprobs_num": LIKELIEST,
    }


def likeliest(answer: Any) -> list[tuple[int, float]]:
    """Token ids and log-probabilities of an answer to `question`, best first."""
    try:
        listed = answer["meta_info"]["output_top_logprobs"][0]
        return sorted(((int(token), float(value)) for value, token, *_ in listed), key=lambda one: -one[1])
    except (KeyError, TypeError, ValueError, IndexError):
        raise DdtoolError(
            "the server gives no log-probabilities, so nobody can say which differences are near ties",
            why="DDTREE and DFLASH refuse them; the judge has to decode plainly",
            hint="have the arm plain in --arms",
        ) from None
