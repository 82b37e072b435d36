"""A literal that every match of a regular expression contains, so that most lines never meet the expression."""

from __future__ import annotations

LEAST = 3  # shorter literals are in too many lines to save anything

_QUANTIFIERS = "*+?{"


def needles(pattern: str) -> tuple[str, ...]:
    """Lower-cased literals of which every match of `pattern` contains one; () when there are none of use."""
    found = _of_alternatives(pattern.removeprefix("(?i)"))
    return found if found and min(map(len, found)) >= LEAST else ()


def _of_alternatives(pattern: str) -> tuple[str, ...]:
    found: list[str] = []
    for branch in _branches(pattern):
        best = max(_clauses(branch), key=lambda clause: min(map(len, clause), default=0), default=())
        if not best:
            return ()
        found += best
    return tuple(dict.fromkeys(found))


def _branches(pattern: str) -> list[str]:
    branches, start, index = [], 0, 0
    while index < len(pattern):
        if pattern[index] == "|":
            branches.append(pattern[start:index])
            start = index + 1
        index = element_end(pattern, index)
    return [*branches, pattern[start:]]


def _clauses(branch: str) -> list[tuple[str, ...]]:
    """What every match of a branch contains, each clause one of its literals."""
    clauses: list[tuple[str, ...]] = []
    run = ""
    index = 0
    while index < len(branch):
        end = element_end(branch, index)
        element, index = branch[index:end], end
        literal = None
        inner: tuple[str, ...] = ()
        if element[0] == "\\":
            literal = element[1] if not element[1].isalnum() else None
        elif element[0] == "(":
            inner = _of_alternatives(_inside(element[1:-1]))
        elif element[0] not in "[.^$":
            literal = element
        quantifier = branch[index : index + 1]
        is_optional = quantifier in ("*", "?") or branch.startswith("{0", index)
        if literal is not None and not is_optional:
            run += literal.lower()
        if literal is None or (quantifier and quantifier in _QUANTIFIERS):
            clauses += [(run,)] if run else []
            run = ""
        if inner and not is_optional:
            clauses.append(inner)
        if quantifier and quantifier in _QUANTIFIERS:
            index = branch.index("}", index) + 1 if quantifier == "{" else index + 1
    return [*clauses, (run,)] if run else clauses


def _inside(group: str) -> str:
    if group.startswith("?P<"):
        return group[group.index(">") + 1 :]
    return group.removeprefix("?:")


def element_end(pattern: str, start: int) -> int:
    """Where the escape, class, group or character that begins at `start` ends, its quantifier not included."""
    index = start + 1
    if pattern[start] == "\\":
        return index + 1
    if pattern[start] == "[":
        index += pattern[index] == "^"
        index += pattern[index] == "]"  # which is a member if it comes first
        while pattern[index] != "]":
            index += 2 if pattern[index] == "\\" else 1
        return index + 1
    if pattern[start] == "(":
        while pattern[index] != ")":
            index = element_end(pattern, index)
        return index + 1
    return index
