"""Does speculation change what the model says? Greedy outputs against plain decoding's on the same build. Pure.

Two correct programs may round differently, and where two tokens are (nearly) as likely, either may be taken: a near
tie. So a difference is judged where it begins: after the tokens that both have in common, how far below the best one is
the one that was taken? Plain decoding's server says (DDTREE refuses log-probabilities).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtool.bench import distribution, lossless_fallback, records
from ddtool.bench.metrics import Acceptance, acceptance, measure
from ddtool.bench.passes import PLAIN
from ddtool.bench.records import Pass
from ddtool.bench.statistics import CHANCE, surplus_p

Json = dict[str, Any]
Ask = Callable[[str, Sequence[int]], Sequence[tuple[int, float]]]
"""(a prompt's hash, ids said so far) → plain decoding's likeliest next tokens with log-probabilities, best first."""

LEAST = 32  # prompts, below which nothing is said; a set of 4 had a threefold spread where others tried it
# Two roundings of one logit lie at most one step of its format apart, so two logits can change places when they are up
# to two steps apart. A step of bfloat16 (8 bits of precision) is 1/16 between 8 and 16, where the best logits of most
# models lie; of float16 (11 bits) 1/128. float32's own step, 1e-6, is not what counts there: sums of thousands of
# products in another order are. docs/bench-numbers.md has the measurements.
TIES = {"bfloat16": 0.125, "float16": 0.016, "float32": 0.001}

EQUAL, NEAR_TIES, DIFFERS = "equal", "near-ties", "differs"
NO_EFFECT, TOO_FEW, NOT_JUDGED = "identical-by-accident?", "too-few", "not-judged"
BY_LOAD = "load-dependent"


@dataclass(frozen=True)
class Output:
    index: int
    prompt: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Divergence:
    """position: of the first token that differs. expected, found: None where that output had ended.

    gap: how far below the best token's log-probability the worse of the two is; None if unknown or off the list.
    """

    index: int
    position: int
    expected: int | None
    found: int | None
    gap: float | None
    near_tie: bool

    def to_json(self) -> Json:
        return dict(vars(self))


@dataclass(frozen=True)
class Greedy:
    """An arm's greedy outputs against plain decoding's. prompts: how many different ones were asked."""

    samples: int
    prompts: int
    divergences: tuple[Divergence, ...]
    judged: bool

    @property
    def equal(self) -> int:
        return self.samples - len(self.divergences)

    @property
    def real(self) -> int:
        return sum(not one.near_tie for one in self.divergences)

    @property
    def verdict(self) -> str:
        """A single real difference is enough; nothing else is said of the answers to fewer than 32 prompts."""
        if self.real:
            return DIFFERS if self.judged else NOT_JUDGED
        if self.prompts < LEAST:
            return TOO_FEW
        return NEAR_TIES if self.divergences else EQUAL


def tie_width(dtype: str) -> float:
    """The largest gap that is a near tie: of logits in this format. Formats not known here count as bfloat16."""
    return TIES.get(dtype, TIES["bfloat16"])


def compare(expected: Sequence[Output], found: Sequence[Output], ask: Ask | None, width: float) -> Greedy:
    """found against expected, by prompt. Without `ask` no difference is a near tie, and the verdict says not judged."""
    reference = {one.prompt: one.ids for one in expected}
    shared = [one for one in found if one.prompt in reference]
    divergences = [
        divergence
        for one in shared
        if (divergence := _divergence(reference[one.prompt], one, ask, width)) is not None
    ]
    return Greedy(len(shared), len({one.prompt for one in shared}), tuple(divergences), ask is not None)


def _divergence(expected: tuple[int, ...], found: Output, ask: Ask | None, width: float) -> Divergence | None:
    if found.ids == expected:
        return None
    longest = max(len(expected), len(found.ids))
    at = next(at for at in range(longest) if expected[at : at + 1] != found.ids[at : at + 1])
    ours, theirs = (ids[at] if at < len(ids) else None for ids in (expected, found.ids))
    gap = None
    if ask and ours is not None and theirs is not None:
        likely = dict(ask(found.prompt, expected[:at]))
        if ours in likely and theirs in likely:
            gap = round(max(likely.values()) - min(likely[ours], likely[theirs]), 5)
    return Divergence(found.index, at, ours, theirs, gap, gap is not None and gap <= width)


def judged(run: Mapping[str, Any], samples: Iterable[object], ask: Ask | None, dtype: str) -> list[Json]:
    """The `lossless` part of ddtool.bench/1, from passes that kept their output ids.

    A greedy cell is held against plain decoding at the lowest load of its workload. Under another load plain decoding
    is held against itself as well: what batching does to it is no fault of speculation. A cell at T > 0 is held against
    plain decoding in the same cell, by its distribution.
    """
    passes = [one for one in records.read(samples).passes if any(s.get("output_ids") for s in one.samples)]
    ask, width = ask and _once(ask), tie_width(dtype)
    entries = []
    for cell in run["plan"]["cells"]:
        reference = cell if cell["temperature"] else lowest_load(run["plan"]["cells"], cell)
        plain, itself = (_of(passes, PLAIN, key) for key in (reference["key"], cell["key"]))
        control = None
        if plain and itself and reference is not cell:
            control = compare(_outputs(plain[0]), _outputs(itself[0]), ask, width)
        for arm in run["plan"]["arms"]:
            mine = _of(passes, arm, cell["key"])
            if not plain or not mine or (arm == PLAIN and reference is cell):
                continue
            if cell["temperature"]:
                judgement = _sampled(plain, mine)
            else:
                judgement = _greedy(
                    arm, compare(_outputs(plain[0]), _outputs(mine[0]), ask, width), control, width
                )
            idle = arm != PLAIN and no_effect(acceptance([measure(one) for one in mine]))
            if idle and judgement["verdict"] != DIFFERS:
                judgement |= {"verdict": NO_EFFECT, "words": idle}
            entries.append({"arm": arm, "cell": cell["key"], **judgement})
    return entries


def lowest_load(cells: Sequence[Json], cell: Json) -> Json:
    """The greedy cell that asks for the same with the fewest requests at a time; rates come last."""
    alike = [
        one
        for one in cells
        if all(one[name] == cell[name] for name in ("workload", "temperature", "max_tokens"))
    ]
    return min(alike, key=lambda one: (one["concurrency"] is None, one["concurrency"] or one["rate"]))


def _sampled(plain: Sequence[Pass], mine: Sequence[Pass]) -> Json:
    expected, found = _by_prompt(plain), _by_prompt(mine)
    drawn = distribution.compare(expected, found)
    same = [_ids(one) for one in mine] == [_ids(one) for one in plain]
    said = drawn.words
    if drawn.differs and lossless_fallback.fell_back(expected, found):
        said += f"; {lossless_fallback.WORDS}"
    return {
        "samples": drawn.samples,
        "equal": None,
        "divergences": [],
        "distribution": drawn.to_json(),
        "verdict": NO_EFFECT if same else _verdict_of(drawn),
        "words": _IDENTICAL if same else said,
    }


def _greedy(arm: str, found: Greedy, control: Greedy | None, width: float) -> Json:
    verdict, said = found.verdict, words(found, width)
    if verdict == DIFFERS and control is not None and (arm == PLAIN or not worse(found, control)):
        verdict = BY_LOAD
        said += f"; plain decoding itself does so in {control.real} of {control.samples} under this load"
    return {
        "samples": found.samples,
        "equal": found.equal,
        "divergences": [one.to_json() for one in found.divergences],
        "distribution": None,
        "verdict": verdict,
        "words": said,
    }


def worse(found: Greedy, control: Greedy) -> bool:
    """Whether the arm differs for real more often than plain decoding does from itself under the same load."""
    return surplus_p(found.real, found.samples, control.real, control.samples) < CHANCE or not control.real


def no_effect(accept: Acceptance | None) -> str:
    """Why an arm cannot have speculated; empty when it did."""
    if accept is None:
        return "the server reports no verify round: the arm did not take effect"
    if accept.mean == 1:
        return "no drafted token was ever accepted: the arm did not take effect, or the drafter is not this target's"
    return ""


_IDENTICAL = (
    "every sampled output is bit by bit plain decoding's: the arm did not take effect, or both share one seed"
)


def words(found: Greedy, width: float) -> str:
    """The verdict in a sentence."""
    counted = f"{found.equal} of {found.samples} outputs are plain decoding's, token for token"
    real = [one for one in found.divergences if not one.near_tie]
    gaps = [one.gap for one in found.divergences if one.gap is not None]
    if real and found.judged:
        first = min(real, key=lambda one: one.position)
        far = "not among its likeliest" if first.gap is None else f"{first.gap:.3f} below its best"
        if first.found is None or first.expected is None:
            far = "where one of them ends"
        return f"{counted}; {len(real)} differ by more than a near tie, the earliest at token {first.position}, {far}"
    if real:
        return f"{counted}; nobody was asked whether the others are near ties"
    ties = f"; the others begin to differ at near ties (gaps to {max(gaps):.3f} of {width:g})" if gaps else ""
    if found.prompts < LEAST:
        return f"{counted}{ties}; answers to fewer than {LEAST} prompts are too few to say"
    return counted + ties


def _verdict_of(drawn: distribution.Comparison) -> str:
    if drawn.differs:
        return DIFFERS
    return EQUAL if drawn.telling else TOO_FEW


def _once(ask: Ask) -> Ask:
    """Asks about each place once, however many arms differ there."""
    known: dict[tuple[str, tuple[int, ...]], Sequence[tuple[int, float]]] = {}

    def asked(prompt: str, said: Sequence[int]) -> Sequence[tuple[int, float]]:
        place = prompt, tuple(said)
        if place not in known:
            known[place] = ask(prompt, said)
        return known[place]

    return asked


def _of(passes: Sequence[Pass], arm: str, cell: str) -> list[Pass]:
    return [one for one in passes if (one.id.arm, one.id.cell) == (arm, cell)]


def _outputs(one: Pass) -> list[Output]:
    return [
        Output(sample["index"], sample["prompt"], tuple(sample["output_ids"]))
        for sample in one.samples
        if sample.get("output_ids") and not sample.get("error")
    ]


def _ids(one: Pass) -> list[tuple[str, tuple[int, ...]]]:
    return [(out.prompt, out.ids) for out in _outputs(one)]


def _by_prompt(passes: Iterable[Pass]) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for one in passes:
        for output in _outputs(one):
            found.setdefault(output.prompt, []).append(output.ids)
    return found
