"""What stands around a line: its traceback, the frames, the lines before and behind, the phase."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from ddtool.crash import events
from ddtool.crash.model import Attempt, Frame, Line, Traceback
from ddtool.crash.numbers import Numbers, of_log
from ddtool.crash.signatures import compiled

# Lines of a log that name a lot and say nothing about a failure beside them.
_TALK = re.compile(
    r"server_args=|Namespace\(|(?:Prefill|Decode) batch|Captur(?:e|ing) |(?:Receive|Finish): obj="
)
# An exception of a line without traceback, as front ends print it behind their own words.
_ERROR = re.compile(
    r"(?:^|[\s:('])(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Fault|Timeout|OutOfResources)(?:\(|: |$)"
)
_FAILED_WITH = re.compile(r"hit an exception|failed with error|fatal|NCCL WARN", re.I)
_FRAME = re.compile(r'\s*File "[^"]+", line \d+')
# What is written in place of lines that are not there.
_LOST = re.compile(
    r"Suppressed \d+ messages|journal.{0,40}(?:gap|vacuum|rotated)|Missed \d+ kernel messages|"
    r"is left out here|dropped lines here|records (?:are|may be) missing|journal from before is gone",
    re.I,
)
_NEAR_BEFORE, _NEAR_AFTER = 8, 2


class Scene:
    """One attempt, with what conditions of signatures ask of it kept at hand."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.lines: Sequence[Line] = attempt.lines
        self._numbers = [line.number for line in self.lines]
        self._chains: dict[int, Traceback] = {}  # line -> the last traceback of its chain
        self._blocks: dict[int, Traceback] = {}  # line -> its own traceback
        self.errors: set[int] = set()
        for last in attempt.tracebacks:
            for block in chain(last):
                if block.kind:
                    self.errors.add(block.error.number)
                for line in block.lines:
                    self._chains[line.number] = last
                    self._blocks[line.number] = block
        self._found: dict[str, list[int]] = {}
        self._texts: dict[int, str] = {}

    def chain(self, line: Line) -> Traceback | None:
        """The last traceback of the chain that `line` is part of."""
        return self._chains.get(line.number)

    def block(self, line: Line) -> Traceback | None:
        return self._blocks.get(line.number)

    def is_source(self, line: Line) -> bool:
        """Whether it is a frame of a traceback or the code in it, which name what might be raised."""
        block = self._blocks.get(line.number)
        if _FRAME.match(line.text):
            return True
        if block is None:
            return False
        is_cut = not block.kind  # the exception's own line is not there
        return block.lines[0].number < line.number and (is_cut or line.number < block.error.number)

    def is_error(self, line: Line) -> bool:
        return line.number in self.errors or (
            line.source == "unit"
            and line.level not in ("warning", "debug")
            and (_ERROR if line.level != "info" else _FAILED_WITH).search(line.text[:400]) is not None
        )

    def is_plain_talk(self, line: Line) -> bool:
        """A logger's line that is no error: what it reports need not have ended anything."""
        return (
            line.level in ("info", "warning", "debug")
            and not self.is_error(line)
            and line.number not in self._blocks
        )

    def matches(self, scope: str, pattern: str, line: Line) -> bool:
        """Whether `pattern` is found in `scope` (signatures.SCOPES) of `line`."""
        if scope == "line":
            return compiled(pattern).search(line.text) is not None
        if scope in ("block", "innermost"):
            text = self.block_text(line) if scope == "block" else self.innermost_text(line)
            return compiled(pattern).search(text) is not None
        at = self._lines_with(pattern)
        first, last = self._range(scope, line.number)
        index = bisect_left(at, first)
        return index < len(at) and at[index] <= last

    def _range(self, scope: str, number: int) -> tuple[int, int]:
        if scope == "before":
            return 0, number - 1
        if scope == "after":
            return number + 1, self._numbers[-1]
        if scope == "near-before":
            return self._numbers[max(0, self.index(number) - 12)], number - 1
        if scope == "stacks":
            return number + 1, self._numbers[min(len(self._numbers) - 1, self.index(number) + 60)]
        return 0, self._numbers[-1]

    def index(self, number: int) -> int:
        return bisect_left(self._numbers, number)

    def _lines_with(self, pattern: str) -> list[int]:
        found = self._found.get(pattern)
        if found is None:
            search = compiled(pattern).search
            found = self._found[pattern] = [line.number for line in self.lines if search(line.text)]
        return found

    def block_text(self, line: Line) -> str:
        """Frames and messages of the whole chain; of a line without traceback its surroundings."""
        text = self._texts.get(line.number)
        if text is None:
            last = self._chains.get(line.number)
            if last and any(block.frames for block in chain(last)):
                text = "\n".join([*frames_of(last), *messages_of(last), line.text])
            else:
                text = "\n".join(self._surroundings(line))
            self._texts[line.number] = text
        return text

    def innermost_text(self, line: Line) -> str:
        if line.number not in self._chains:
            return "\n".join(self._surroundings(line))
        frames = self.frames(line)
        return frame_text(frames[-1]) if frames else ""

    def frames(self, line: Line) -> tuple[Frame, ...]:
        """Of the earliest exception in the chain of `line` that was printed with frames; outermost first."""
        last = self._chains.get(line.number)
        blocks = reversed(list(chain(last))) if last else ()
        return next((block.frames for block in blocks if block.frames), ())

    def _surroundings(self, line: Line) -> Iterator[str]:
        index = self.index(line.number)
        for near in self.lines[max(0, index - _NEAR_BEFORE) : index + _NEAR_AFTER + 1]:
            if near is line or not (_TALK.search(near.text) or near.source != "unit"):
                yield near.text

    def phase(self, line: Line) -> str:
        return self.attempt.phase_at(line.number, line.rank)

    @cached_property
    def known(self) -> Numbers:
        """What the server printed about its own arguments."""
        return of_log(line.text for line in [*self.lines, *self.attempt.aside])

    @cached_property
    def gaps(self) -> list[Line]:
        """Lines that say that the journal lost others."""
        return [line for line in self.lines if line.source != "unit" and _LOST.search(line.text)]

    @cached_property
    def batches(self) -> list[int]:
        return [line.number for line in self.lines if events.is_good(line)]

    @cached_property
    def seconds(self) -> list[float | None]:
        """Of each line, the time that was last said; None before the first."""
        said: list[float | None] = []
        now: float | None = None
        for line in self.lines:
            now = line.unix_us / 1e6 if line.unix_us is not None else now
            said.append(now)
        return said

    @cached_property
    def has_clock(self) -> bool:
        """Whether times tell lines apart; a paste whose lines all carry one stamp has none."""
        return len({second for second in self.seconds if second is not None}) > 1

    def second(self, number: int) -> float | None:
        return self.seconds[min(self.index(number), len(self.lines) - 1)] if self.has_clock else None


def chain(last: Traceback) -> Iterator[Traceback]:
    """The last exception of a chain first, the earliest last."""
    block: Traceback | None = last
    while block is not None:
        yield block
        block = block.cause


def frame_text(frame: Frame) -> str:
    return f"{frame.path}:{frame.function}: {frame.code or ''}"


def frames_of(last: Traceback) -> Iterable[str]:
    for block in reversed(list(chain(last))):
        yield from map(frame_text, block.frames)


def messages_of(last: Traceback) -> Iterable[str]:
    for block in reversed(list(chain(last))):
        yield f"{block.kind}: {block.message}"
