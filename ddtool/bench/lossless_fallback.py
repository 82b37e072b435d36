"""Was an arm that should have drawn its tokens greedy after all? From answers alone, without the server's log. Pure.

SGLang's chain is, where its sampling kernel is missing: it says so once in its log and goes on. Prefill still draws the
answer's first token, so answers vary, and each of them is a plausible one; only the distribution is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Outputs = Mapping[str, Sequence[Sequence[int]]]

TOKENS = 8  # of each answer, first one included; in later ones a near tie may part even greedy answers
LEAST = 20  # answers that begin like another one, below which nothing is said
SURE = 0.95  # share of them that go on alike; not all, because batches of other sizes round otherwise

WORDS = (
    "after its first token an answer of this arm is nearly always the same, as with greedy decoding: SGLang's chain "
    "does so where its sampling kernel is missing, and its log says 'falling back to greedy'"
)


def fell_back(plain: Outputs, arm: Outputs) -> bool:
    """Whether the arm's answers follow from prompt and first token, where plain decoding's do not.

    plain, arm: by prompt, the token ids of each answer.
    """
    ours, theirs = _settled(arm), _settled(plain)
    return ours is not None and theirs is not None and ours >= SURE > theirs


def _settled(outputs: Outputs) -> float | None:
    """Of the answers that begin like another one to their prompt, the share that goes on as most of these do."""
    going_on: defaultdict[tuple[str, int], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for prompt, answers in outputs.items():
        for first, *rest in (answer[:TOKENS] for answer in answers if answer):
            going_on[prompt, first][tuple(rest)] += 1
    groups = [counts for counts in going_on.values() if counts.total() > 1]
    compared = sum(counts.total() for counts in groups)
    if compared < LEAST:
        return None
    return sum(max(counts.values()) for counts in groups) / compared
