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
    branches, depth, start, index = [], 0, 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index = _class_end(pattern, index)
        elif char == "|" and depth == 0:
            branches.append(pattern[start:index])
            start = index + 1
        else:
            depth += {"(": 1, ")": -1}.get(char, 0)
        index += 1
    return [*branches, pattern[start:]]


def _clauses(branch: str) -> list[tuple[str, ...]]:
    """What every match of a branch contains, each clause one of its literals."""
    clauses: list[tuple[str, ...]] = []
    run = ""
    index = 0
    while index < len(branch):
        char = branch[index]
        literal = None
        inner: tuple[str, ...] = ()
        if char == "\\":
            index += 1
            literal = branch[index] if not branch[index].isalnum() else None
        elif char == "[":
            index = _class_end(branch, index)
        elif char == "(":
            end = _group_end(branch, index)
            inner = _of_alternatives(_inside(branch[index + 1 : end]))
            index = end
        elif char not in ".^$":
            literal = char
        index += 1
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


def _class_end(pattern: str, start: int) -> int:
    end = pattern.index("]", start + (3 if pattern[start + 1] == "^" else 2))
    while pattern[end - 1] == "\\" and pattern[end - 2] != "\\":
        end = pattern.index("]", end + 1)
    return end


def _group_end(pattern: str, start: int) -> int:
    depth, index = 0, start
    while True:
        char = pattern[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index = _class_end(pattern, index)
        else:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                return index
        index += 1
