"""The verify trace as texts: what was said, and what the drafter thought at each position of it.

The trace of a server with `every-token` has a draft for every position. Any other has them where a round began.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ddtool.bench.tune.trees import Draft
from ddtool.errors import DdtoolError


@dataclass(frozen=True)
class Text:
    """A completion: its token ids, and drafts by the index of their root among them. Prefill gives the first token.

    prompt_tokens: before it. said: digests of the prompt and of the text, where the load client's samples tell them.
    """

    ids: tuple[int, ...]
    drafts: Mapping[int, Draft]
    prompt_tokens: int = 0
    said: tuple[str, str] | None = None

    @property
    def rounds_end(self) -> int:
        """No round starts from here on: the last token needs none."""
        return len(self.ids) - 1

    @property
    def is_dense(self) -> bool:
        return all(root in self.drafts for root in range(self.rounds_end))


def read(lines: Iterable[str]) -> list[Text]:
    """The trace's requests in order of appearance; a torn last line is left out.

    Whoever asked the server is among them: its own warm-up, the load client's, and an attempt that broke off.

    Raises DdtoolError for lines that are no verify trace, or one of an engine that did not write the text into it.
    """
    rounds: dict[str, list[Mapping[str, Any]]] = {}
    torn = ""
    for number, line in enumerate(lines, 1):
        if torn:
            raise DdtoolError(torn, hint="trace again: ddtool tune without --from")
        try:
            record = json.loads(line)
            rounds.setdefault(record["rid"], []).append(record)
        except (ValueError, KeyError, TypeError):
            torn = f"line {number} of the trace is no round of the verify trace"
    return [_text(records) for records in rounds.values()]


def _text(records: list[Mapping[str, Any]]) -> Text:
    """Each round says its root, the choices that it took, and its last token, which is the next one's root."""
    first = records[0]["position"]
    ids: list[int] = []
    drafts: dict[int, Draft] = {}
    try:
        for record in records:
            root = record["position"] - first
            if root != max(len(ids) - 1, 0) or (ids and ids[-1] != record["root"]):
                break  # a request that was taken back and started again; what came before is a text all the same
            drafts[root] = Draft(record["logprobs"], record["ids"])
            path = [record["ids"][depth][rank] for depth, rank in enumerate(record["path_ranks"])]
            ids = [*ids[:root], record["root"], *path, record["bonus"]]
    except KeyError as missing:
        raise DdtoolError(
            f"the trace has no {missing} in it: an older engine of ddtool wrote it",
            hint="ddtool tune without --from measures with this one",
        ) from None
    return Text(tuple(ids), drafts, first)
