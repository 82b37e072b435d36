"""The parts of a very long log that a verdict needs, at the speed of RE2 and in constant memory.

RE2 looks through blocks for three things at once: what the signatures look for, what any failure says, and the
lines by which a start, a phase or an end is known. Around the first two a window of lines is kept, of the third
the line. The beginning, the end, and the first windows of every kind in every attempt are kept; once that is more
than `HEAD_LINES`, only the last `TAIL_LINES` of what follows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import re2

from ddtool.crash.lines import bounded

BEFORE = 60
AFTER = 100
HEAD_LINES = 40_000
TAIL_LINES = 10_000
KIND_LIMIT = 30  # windows of one kind in one attempt
_MEMORY = 64 << 20  # for RE2's automata; beyond it RE2 gets slow, not wrong

_FAILURE = (
    r"Traceback \(most recent call",
    r"[a-z](?:Error|Exception)\b",
    r"\b(?:FATAL|CRITICAL)\b|[Ff]atal [Pp]ython error|terminate called|Segmentation fault|core dumped|Aborted",
    r"NVRM: |\bXid\b|oom-kill|[Oo]ut of memory|No space left|Permission denied|Bus error",
    r"\bSIG(?:QUIT|ABRT|SEGV|BUS|ILL|FPE)\b|sigquit|exit(?: |ed with |_)code",
    r"NCCL WARN|Watchdog|timed out|Assertion `|ddtool-diag/1",
    r"hit an exception|unexpectedly|\berror: ",
)
_START = r": Start(?:ed|ing) |Start(?:ed|ing) .*\.service|server_args=|-- Boot |Scheduled restart job"
_LIFE = (
    r"\.service: |Stopp(?:ed|ing) |Failed to start ",
    r"Init torch distributed|Load weight|Memory pool end|Capture .{1,80} begin|fired up|startup complete",
    r"Model loading took|Initializing an? ",
    r'"MESSAGE" ?: ?\[',  # bytes in which nothing can be found before they are decoded
)


def interesting(blocks: Iterable[bytes], patterns: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """(number, raw line) of what lies around a match of `patterns` (regular expressions on cleaned text) or of
    any failure, and of the lines that say how far a start is; numbers ascend."""
    return _Selection(_Needles(patterns)).lines(blocks)


def relaxed(pattern: str) -> str:
    """An RE2 pattern that matches wherever `pattern` matches once prefix, colours and JSON quoting are there.

    Anchors and look-arounds are left out, back references become anything, a quote may be escaped.
    """
    out: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            escaped = pattern[index + 1 : index + 2]
            out.append("" if escaped in "AZ" else ".*" if escaped.isdigit() else char + escaped)
            index += 2
        elif char == "[":
            end = pattern.index("]", index + (3 if pattern[index + 1] == "^" else 2))
            while pattern[end - 1] == "\\" and pattern[end - 2] != "\\":
                end = pattern.index("]", end + 1)
            out.append(pattern[index : end + 1])
            index = end + 1
        elif pattern.startswith(("(?=", "(?!", "(?<=", "(?<!"), index):
            index = _group_end(pattern, index)
        elif pattern.startswith("(?P=", index):
            out.append(".*")
            index = pattern.index(")", index) + 1
        else:
            out.append("" if char in "^$" else r'\\?"' if char == '"' else char)
            index += 1
    return "".join(out)


def _group_end(pattern: str, start: int) -> int:
    depth = 0
    index = start
    while index < len(pattern):
        if pattern[index] == "\\":
            index += 1
        elif pattern[index] == "[":
            index = pattern.index("]", index + 2)
        else:
            depth += {"(": 1, ")": -1}.get(pattern[index], 0)
            if depth == 0:
                return index + 1
        index += 1
    raise ValueError(f"a group that does not end in {pattern!r}")


class _Needles:
    """Everything that is looked for, as one automaton; which of them a line has is asked of a second one."""

    def __init__(self, patterns: Sequence[str]) -> None:
        wanted = [relaxed(pattern) for pattern in patterns]
        self._windowed = len(wanted) + len(_FAILURE)
        everything = [*wanted, *_FAILURE, _START, *_LIFE]
        self._start = self._windowed
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.never_capture = True
        options.log_errors = False
        options.max_mem = _MEMORY
        self._any = re2.compile("|".join(f"(?:{each})" for each in everything).encode(), options)
        self._set = re2.Set.SearchSet(options)
        for each in everything:
            self._set.Add(each.encode())
        self._set.Compile()

    def first(self, block: bytes, start: int) -> int | None:
        """Where the next hit in `block` ends."""
        found = self._any.search(block, start)
        return None if found is None else int(found.end())

    def kinds(self, line: bytes) -> tuple[list[int], bool]:
        """(which needles a line has, only those that want a window; whether a start is said in it)."""
        found = self._set.Match(line)
        return [kind for kind in found if kind < self._windowed], self._start in found


class _Selection:
    """Which lines to keep. `_sent`: number of the last line given out; `_until`: the last that a window wants."""

    def __init__(self, needles: _Needles) -> None:
        self._needles = needles
        self._seen: Counter[int] = Counter()
        self._sent = 0
        self._until = AFTER

    def lines(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        head = 0
        tail: deque[tuple[int, bytes]] = deque(maxlen=TAIL_LINES)
        for line in self._chosen(blocks):
            if head < HEAD_LINES:
                head += 1
                yield line
            else:
                tail.append(line)
        yield from tail

    def _chosen(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        number = 1  # of the first line in `block`
        last = _Part(1, [])
        for block in _whole_lines(blocks):
            count = block.count(b"\n")
            if number <= self._until:
                yield from self._send(_Part(number, _split(block, self._until - number + 1)), self._until)
            yield from self._hits(block, number, last)
            last = _last_lines(block, number, count, last)
            number += count
        yield from self._send(last, last.first + len(last.lines) - 1)

    def _hits(self, block: bytes, number: int, last: _Part) -> Iterator[tuple[int, bytes]]:
        position = 0
        counted = 0
        while (hit := self._needles.first(block, position)) is not None:
            start = block.rfind(b"\n", 0, max(hit - 1, 0)) + 1
            end = block.find(b"\n", start)
            number += block.count(b"\n", counted, start)
            counted = start
            position = end + 1
            kinds, begins = self._needles.kinds(block[start:end])
            if begins:
                self._seen.clear()
            if wanted := [kind for kind in kinds if self._seen[kind] < KIND_LIMIT]:
                self._seen.update(wanted)
                yield from self._window(block, start, number, last)
            elif not kinds and number > self._sent:
                self._sent = number
                yield number, block[start:end]

    def _window(self, block: bytes, start: int, number: int, last: _Part) -> Iterator[tuple[int, bytes]]:
        """Everything from `BEFORE` lines before the line at `start` to `AFTER` behind it, as far as it is in reach."""
        first = start
        missing = BEFORE
        while missing and first > 0 and number - (BEFORE - missing) > self._sent + 1:
            first = block.rfind(b"\n", 0, first - 1) + 1
            missing -= 1
        before = number - (BEFORE - missing)
        if first == 0 and missing:
            yield from self._send(last, before - 1, before - missing)
        self._until = number + AFTER
        yield from self._send(_Part(before, _split(block[first:], self._until - before + 1)), self._until)

    def _send(self, part: _Part, upto: int, since: int = 0) -> Iterator[tuple[int, bytes]]:
        since = max(since, self._sent + 1)
        for number, line in enumerate(part.lines, part.first):
            if since <= number <= upto:
                self._sent = number
                yield number, line


class _Part:
    """Consecutive lines, and the number of the first."""

    __slots__ = ("first", "lines")

    def __init__(self, first: int, lines: list[bytes]) -> None:
        self.first = first
        self.lines = lines


def _split(block: bytes, limit: int) -> list[bytes]:
    """At most the first `limit` lines of whole lines."""
    lines = block.split(b"\n", limit)
    return lines[:-1] if len(lines) > limit or not lines[-1] else lines


def _last_lines(block: bytes, number: int, count: int, before: _Part) -> _Part:
    lines = block.rsplit(b"\n", BEFORE + 1)
    if len(lines) > BEFORE + 1:
        return _Part(number + count - BEFORE, lines[1:-1])
    merged = [*before.lines, *lines[:-1]][-BEFORE:]
    return _Part(number + count - len(merged), merged)


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks that end with a line's end; of a line longer than `lines.LINE_LIMIT` the middle is lost."""
    rest = b""
    for block in chain(blocks, [None]):
        if block is None:
            if rest:
                yield rest + b"\n"
            return
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest = bounded(rest + block)
