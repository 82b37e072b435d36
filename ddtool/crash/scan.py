"""The parts of a very long log that a verdict needs, at the speed of RE2 and in constant memory.

RE2 looks through blocks for three things at once: what the signatures look for, what any failure says, and the
lines by which a start, a phase or an end is known. Around the first two a window of lines is kept, of the third
the line. The beginning, the end, and the first windows of every kind in every attempt are kept; once that is more
than `HEAD_LINES`, only the last `TAIL_LINES` of what follows.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import re2

from ddtool.crash.lines import bounded
from ddtool.crash.needles import element_end

BEFORE = 60
AFTER = 100
HEAD_LINES = 40_000
TAIL_LINES = 10_000
KIND_LIMIT = 30  # windows of one kind in one attempt
NOISE_AFTER = (
    5_000  # hits, of which whatever had a tenth is not looked for any more: it is in every other line
)
END = 400  # lines at the end
_MEMORY = 64 << 20  # for RE2's automata; beyond it RE2 gets slow, not wrong

# Where a message may begin: at the line's begin, or behind a prefix, a quote or a "\\n" in a JSON string.
_BEGIN = r'(?:(?m:^)|[\]|:)}>"ZFP0-9-] ?|\\n)'

_OPTIONAL = re.compile(r"(?:[?*]|\{0?,\d*\})\??")
_COUNTED = re.compile(r"\{(\d*),\d*\}")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>|(?!\?))")

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

    A message begins at the line's begin or behind a mark; ends and look-arounds are left out, back references
    become anything, a quote may be escaped. For the automaton's sake nothing is counted ("{0,80}" is a state for
    each), and what may be missing at the begin is left out, and the begin with it: "(\\w+\\.)*Error" would have it
    follow every word of every line.
    """
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    body = pattern.removeprefix("(?i)")
    return flags + _relaxed(body[_after_optional(body, 0) :])


def _relaxed(pattern: str) -> str:
    out = ""
    index = 0
    while index < len(pattern):
        end = element_end(pattern, index)
        element = pattern[index:end]
        if element in ("^", "\\A"):
            index, end = end, _after_optional(pattern, end)
            out += _BEGIN if index == end else ""
        elif counted := _COUNTED.match(pattern, index):
            end = counted.end()
            out += "*" if counted[1] in ("", "0") else "+"
        elif group := _GROUP.match(element):
            out += f"(?:{_relaxed(element[group.end() : -1])})"
        elif element.startswith("(?P=") or (element[0] == "\\" and element[1].isdigit()):
            out += ".*"
        elif element not in ("$", "\\Z") and not element.startswith("("):
            out += r'\\?"' if element == '"' else element
        index = end
    return out


def _after_optional(pattern: str, index: int) -> int:
    """Behind everything at `index` that a match need not have."""
    while index < len(pattern) and pattern[index] not in "|)":
        end = element_end(pattern, index)
        found = _OPTIONAL.match(pattern, end)
        if not found:
            break
        index = found.end()
    return index


class _Needles:
    """Everything that is looked for, as one automaton; which of them a line has is asked of a second one."""

    def __init__(self, patterns: Sequence[str]) -> None:
        wanted = [relaxed(pattern) for pattern in patterns]
        self._all = [*wanted, *_FAILURE, _START, *_LIFE]
        self._start = len(wanted) + len(_FAILURE)  # needles below it want a window
        self._options = re2.Options()
        self._options.encoding = re2.Options.Encoding.LATIN1
        self._options.never_capture = True
        self._options.log_errors = False
        self._options.max_mem = _MEMORY
        self._set = re2.Set.SearchSet(self._options)
        for each in self._all:
            self._set.Add(each.encode())
        self._set.Compile()
        self._noise: set[int] = set()
        self._hits: Counter[int] = Counter()
        self._any = self._alternation()

    def _alternation(self) -> Any:
        wanted = (each for index, each in enumerate(self._all) if index not in self._noise)
        return re2.compile("|".join(f"(?:{each})" for each in wanted).encode(), self._options)

    def first(self, block: bytes, start: int) -> int | None:
        """Where the next hit in `block` ends."""
        found = self._any.search(block, start)
        return None if found is None else int(found.end())

    def kinds(self, line: bytes) -> tuple[list[int], bool]:
        """(which needles a line has, only those that want a window; whether a start is said in it)."""
        found = self._set.Match(line) or ()
        self._hits.update(found)
        if self._hits.total() > NOISE_AFTER:
            self._noise.update(kind for kind, count in self._hits.items() if count > NOISE_AFTER // 10)
            self._noise.discard(self._start)
            self._any = self._alternation()
            self._hits.clear()
        return [kind for kind in found if kind < self._start], self._start in found


class _Selection:
    """Which lines to keep. `_sent`: number of the last line given out; `_until`: the last that a window wants."""

    def __init__(self, needles: _Needles) -> None:
        self._needles = needles
        self._seen: Counter[int] = Counter()
        self._recent: deque[_Block] = (
            deque()
        )  # blocks that may still be wanted, the last `END` lines at least
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
        number = 1
        for data in _whole_lines(blocks):
            block = _Block(number, data)
            number += block.count
            self._remember(block)
            yield from self._send(self._until)
            yield from self._hits(block)
        yield from self._send(number - 1, since=number - END)

    def _remember(self, block: _Block) -> None:
        self._recent.append(block)
        while self._recent[-1].end - self._recent[0].end >= END:
            self._recent.popleft()

    def _hits(self, block: _Block) -> Iterator[tuple[int, bytes]]:
        position = 0
        counted, number = 0, block.first
        while (hit := self._needles.first(block.data, position)) is not None:
            start = block.data.rfind(b"\n", 0, max(hit - 1, 0)) + 1
            position = block.data.index(b"\n", start) + 1
            number += block.data.count(b"\n", counted, start)
            counted = start
            kinds, begins = self._needles.kinds(block.data[start : position - 1])
            if begins:
                self._seen.clear()
            if wanted := [kind for kind in kinds if self._seen[kind] < KIND_LIMIT]:
                self._seen.update(wanted)
                self._until = number + AFTER
                yield from self._send(self._until, since=number - BEFORE)
            elif not kinds:
                yield from self._send(number, since=number)

    def _send(self, upto: int, since: int = 1) -> Iterator[tuple[int, bytes]]:
        """The lines `since` to `upto` that are at hand and have not been given out."""
        since = max(since, self._sent + 1)
        for block in self._recent:
            if since <= upto and block.first <= upto and since < block.end:
                for number, line in block.lines(since, upto):
                    self._sent = number
                    yield number, line


class _Block:
    """Whole lines, from number `first` to the one before `end`."""

    def __init__(self, first: int, data: bytes) -> None:
        self.first = first
        self.data = data
        self.count = data.count(b"\n")
        self.end = first + self.count
        self._place = (first, 0)  # a line's number and where it begins, to go on from

    def lines(self, since: int, upto: int) -> Iterator[tuple[int, bytes]]:
        number, start = self._place if self._place[0] <= since else (self.first, 0)
        while number < since:
            start = self.data.index(b"\n", start) + 1
            number += 1
        while number <= upto and number < self.end:
            end = self.data.index(b"\n", start)
            yield number, self.data[start:end]
            number, start = number + 1, end + 1
            self._place = (number, start)


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
