"""Which signature speaks for which line of an attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddtool.crash.model import Line
from ddtool.crash.scene import Scene
from ddtool.crash.signatures import Catalogue, Signature, compiled

LONG = 3000  # lines from which the literals are looked for with RE2
TEXT_LIMIT = 20_000  # characters of a line that are looked at


@dataclass(frozen=True, slots=True)
class Hit:
    line: Line
    signature: Signature
    groups: Mapping[str, str]

    @property
    def number(self) -> int:
        return self.line.number


def hits(scene: Scene, catalogue: Catalogue) -> list[Hit]:
    """For each line that a signature matches, the one of most weight (of equals the one with more conditions)."""
    return [max(found, key=_rank) for found in firing(scene, catalogue)]


def firing(scene: Scene, catalogue: Catalogue) -> Iterator[list[Hit]]:
    """For each line every signature that matches it with all its conditions."""
    needles = catalogue.by_needle
    holds = _holds(list(needles), len(scene.lines))
    for line in scene.lines:
        if not line.text or scene.is_source(line):
            continue
        wanted = {entry for needle in holds(line.text[:TEXT_LIMIT].lower()) for entry in needles[needle]}
        matched = {}
        for index, pattern in sorted(wanted):
            if index not in matched and (found := compiled(pattern).search(line.text[:TEXT_LIMIT])):
                matched[index] = {key: value for key, value in found.groupdict().items() if value is not None}
        here = [
            Hit(line, catalogue.signatures[index], groups)
            for index, groups in matched.items()
            if _applies(catalogue.signatures[index], line, groups, scene)
        ]
        if here:
            yield here


def _holds(needles: Sequence[str], lines: int) -> Callable[[str], list[str]]:
    """Which of `needles` a text holds."""
    if lines < LONG:
        return lambda text: [needle for needle in needles if needle in text]
    import re2

    found = re2.Set.SearchSet()
    for needle in needles:
        found.Add(re2.escape(needle))
    found.Compile()
    return lambda text: [needles[index] for index in found.Match(text)]


def _applies(signature: Signature, line: Line, groups: Mapping[str, str], scene: Scene) -> bool:
    return (
        not any(compiled(each).search(line.text) for each in signature.unless)
        and (not signature.only or any(compiled(each).search(line.text) for each in signature.only))
        and (signature.where == "line" or scene.is_error(line))
        and (not signature.phase or scene.phase(line) in signature.phase)
        and (not signature.numbers or _in_bounds(signature.numbers, groups, scene))
        and _few_batches(signature, line, scene)
        and all(
            any(scene.matches(scope, each, line) for each in listed)
            for scope, listed in signature.requires.items()
        )
        and not any(
            scene.matches(scope, each, line) for scope, listed in signature.forbids.items() for each in listed
        )
    )


def _in_bounds(bounds: Mapping[str, int], groups: Mapping[str, str], scene: Scene) -> bool:
    if "a" not in groups or "b" not in groups:
        return False
    small, large = sorted((int(groups["a"]), int(groups["b"])))
    return (
        small >= bounds.get("smallest_at_least", 0)
        and large - small >= bounds.get("gap_at_least", 0)
        and large - small <= bounds.get("gap_at_most", large)
        and (
            "context_gap_at_most" not in bounds
            or _near_context(bounds["context_gap_at_most"], small, large, scene)
        )
    )


def _near_context(most: int, small: int, large: int, scene: Scene) -> bool:
    """Whether one of two numbers is near the context length, which few servers say and every log may lack."""
    context = scene.known.context
    return context is None or min(abs(small - context), abs(large - context)) <= most


def _few_batches(signature: Signature, line: Line, scene: Scene) -> bool:
    if signature.batches_at_most is None:
        return True
    return sum(number < line.number for number in scene.batches) <= signature.batches_at_most


def _rank(hit: Hit) -> tuple[int, int]:
    each = hit.signature
    conditions = [each.only, each.requires, each.forbids, each.phase, each.numbers, each.unless]
    return each.weight + (1000 if each.role == "advisory" else 0), sum(map(bool, conditions))
