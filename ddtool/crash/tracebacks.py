"""Python tracebacks out of lines in which several ranks spoke at once.

Every continuation line goes to one open traceback. Where a line names its process or rank, that decides; where
it does not, the lines of ranks that fail alike come in step, so the traceback whose code calls the new frame's
function, or the one that is furthest behind, takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ddtool.crash.model import Frame, Line, Traceback

HEAD = "Traceback (most recent call last)"
_FILE = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<lineno>\d+)(?:, in (?P<function>.+))?$')
_DUMPED = re.compile(r'\s*File "(?P<path>[^"]+)", line (?P<lineno>\d+) in (?P<function>.+)$')
_DUMP_THREAD = re.compile(r"(?P<current>Current t|T)hread 0x[0-9a-f]+ .*\(most recent call first\):")
_FATAL = re.compile(r"Fatal Python error: (?P<what>.*)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MARKS = re.compile(r"\s+[~^ ]*[\^~][~^ ]*$|\s*\[Previous line repeated \d+ more times?\]$")
_GROUP = re.compile(r"\s*(?:\| ?|\+[-+ ]+\d* ?-*$)")
_EXCEPTION = re.compile(
    r"(?P<kind>(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?:\([\w.]+\))?)(?:: (?P<message>.*)|:?$)"
)
_EXCEPTION_NAME = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Timeout|Expired|Warning|Fault|Abort|Group|Iteration)$"
)
_IDLE = 400  # lines after which nobody waits for the rest of a traceback
_AT_ONCE = 64  # tracebacks that may be open, more than any host has ranks
_CHAIN = 50  # causes of one exception
_MESSAGE_LINES = 80
_NEAR = 16  # lines between an exception and the sentence that chains it to the next


@dataclass(slots=True)
class _Block:
    """One traceback while it is put together. `state`: head, file (its source line may follow), code, error."""

    lines: list[Line]
    frames: list[Frame] = field(default_factory=list)
    state: str = "head"
    error: Line | None = None
    kind: str = ""
    message: list[str] = field(default_factory=list)
    cause: _Block | None = None
    depth: int = 1  # blocks in the chain that ends here
    chained: bool = False  # another block has this one as its cause
    dump: bool = False  # of faulthandler: innermost frame first, error before the frames

    @property
    def first(self) -> int:
        return self.lines[0].number

    @property
    def last(self) -> int:
        return self.lines[-1].number

    def may_hold(self, line: Line) -> bool:
        """Whether nothing that both say about their process and rank disagrees."""
        return all(
            (line.pid is None or own.pid is None or line.pid == own.pid)
            and (line.rank is None or own.rank is None or line.rank == own.rank)
            and line.ident == own.ident
            for own in (self.lines[0], self.lines[-1])
        )

    def finished(self) -> Traceback:
        frames = tuple(reversed(self.frames)) if self.dump else tuple(self.frames)
        cause = self.cause.finished() if self.cause else None
        own = next((line.rank for line in self.lines if line.rank is not None), None)
        return Traceback(
            lines=tuple(self.lines),
            frames=frames,
            error=self.error or self.lines[-1],
            kind=self.kind,
            message="\n".join(self.message),
            cause=cause,
            rank=own if own is not None or cause is None else cause.rank,
        )


def tracebacks(lines: Iterable[Line]) -> tuple[Traceback, ...]:
    """Every traceback, by its first line; of a chain only the last, with its causes. Without an error line (the
    text was cut off) `kind` is empty and `error` is the last line that is there."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    blocks = [block for block in reader.all() if not block.chained and (block.frames or block.error)]
    return tuple(block.finished() for block in sorted(blocks, key=lambda block: block.first))


class _Reader:
    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._closed: list[_Block] = []
        self._speaking: _Block | None = None  # its error line has come, its message may go on
        self._awaited: list[_Block] = []  # causes whose successor has been announced

    def all(self) -> Iterator[_Block]:
        yield from self._closed
        yield from self._open

    def take(self, line: Line) -> None:
        text = line.text
        if group := _GROUP.match(text):
            text = text[group.end() :]
        if line.source != "unit":
            return
        if not text.strip():
            if self._speaking and not self._speaking.dump:
                self._speaking = None
            return
        if HEAD in text:
            self._begin(line)
        elif text.startswith(_CHAINED):
            self._chain(line)
        elif fatal := _FATAL.match(text):
            self._add_dump(line, fatal["what"])
        elif self._open or self._speaking or self._awaited or text.lstrip().startswith('File "'):
            self._continue(line, text)

    def _begin(self, line: Line) -> None:
        self._speaking = None
        self._add(self._successor(line))

    def _add(self, block: _Block) -> None:
        self._open.append(block)
        if len(self._open) > _AT_ONCE:
            self._closed.append(self._open.pop(0))

    def _successor(self, line: Line) -> _Block:
        block = _Block([line])
        cause = next((known for known in self._awaited if known.may_hold(line)), None)
        if cause:
            self._awaited.remove(cause)
            if cause.depth < _CHAIN:
                block.cause, block.depth, cause.chained = cause, cause.depth + 1, True
        return block

    def _chain(self, line: Line) -> None:
        self._speaking = None
        near = [
            block
            for block in self._closed[-_AT_ONCE:]
            if line.number - block.last <= _NEAR * (1 + len(self._open))
            and block.may_hold(line)
            and not block.chained
            and block not in self._awaited
            and not block.dump
        ]
        if near:  # ranks that failed together announce in the order in which they failed
            together = [
                block for block in near if block.first <= near[-1].last and block.last >= near[-1].first
            ]
            self._awaited = [*self._awaited[-_AT_ONCE:], together[0]]

    def _add_dump(self, line: Line, what: str) -> None:
        block = _Block([line], state="dump", error=line, kind="Fatal Python error", message=[what], dump=True)
        self._closed.append(block)
        self._speaking = block

    def _continue(self, line: Line, text: str) -> None:
        if self._speaking and self._speaking.dump and self._dumped(self._speaking, line, text):
            return
        if frame := _FILE.match(text):
            self._frame(line, Frame(frame["path"], int(frame["lineno"]), frame["function"] or ""))
        elif _MARKS.match(text):
            return
        elif not self._code(line, text) and not self._error(line, text):
            self._message(line, text)
        self._drop_idle(line)

    def _dumped(self, block: _Block, line: Line, text: str) -> bool:
        if not block.may_hold(line):
            return False
        if found := _DUMPED.match(text):
            if block.state == "current":
                block.lines.append(line)
                block.frames.append(Frame(found["path"], int(found["lineno"]), found["function"]))
            return True
        if thread := _DUMP_THREAD.match(text):
            block.state = "current" if thread["current"] == "Current t" else "other"
            return True
        return False

    def _frame(self, line: Line, frame: Frame) -> None:
        waiting = [block for block in self._open if block.may_hold(line)]
        if waiting:
            block = min(waiting, key=lambda block: _distance(block, frame))
            block.lines.append(line)
        else:  # the paste begins in the middle of a traceback
            block = _Block([line])
            self._add(block)
        block.frames.append(frame)
        block.state = "file"

    def _code(self, line: Line, text: str) -> bool:
        """The source line under a frame. It is indented, unless the paste lost that."""
        plain = not text[0].isspace()
        if plain and (line.level in ("debug", "info", "warning") or _named_exception(text)):
            return False
        for block in sorted(self._open, key=lambda block: block.last):
            if block.state == "file" and block.may_hold(line):
                last = block.frames[-1]
                block.frames[-1] = Frame(last.path, last.lineno, last.function, text.strip())
                block.lines.append(line)
                block.state = "code"
                return True
        return not plain and any(block.state == "code" and block.may_hold(line) for block in self._open)

    def _error(self, line: Line, text: str) -> bool:
        found = _EXCEPTION.match(text)
        if not found or line.level in ("debug", "info", "warning"):
            return False
        waiting = [block for block in self._open if block.frames and block.may_hold(line)]
        if not waiting and self._awaited and _named_exception(text):
            self._close(self._successor(line), line, found)  # chained, and printed without frames
            return True
        if not waiting or not (_named_exception(text) or (len(waiting) == 1 and found["name"][0].isupper())):
            return False
        block = min(waiting, key=lambda block: (block.state == "file", block.last))  # whose turn it is
        self._open.remove(block)
        block.lines.append(line)
        self._close(block, line, found)
        return True

    def _close(self, block: _Block, line: Line, found: re.Match[str]) -> None:
        block.error, block.kind, block.state = line, found["kind"], "error"
        block.message = [found["message"] or ""]
        self._closed.append(block)
        self._speaking = block

    def _message(self, line: Line, text: str) -> None:
        block = self._speaking
        if block is None or block.dump:
            return
        assert block.error
        same_mark = line.level == block.error.level and line.rank == block.error.rank
        if (line.level is None or (line.level == "error" and same_mark)) and block.may_hold(line):
            if len(block.message) < _MESSAGE_LINES:
                block.lines.append(line)
                block.message.append(text)
        else:
            self._speaking = None

    def _drop_idle(self, line: Line) -> None:
        for block in [block for block in self._open if line.number - block.last > _IDLE]:
            self._open.remove(block)
            self._closed.append(block)


def _distance(block: _Block, frame: Frame) -> tuple[bool, int, int]:
    """How badly `frame` would follow in `block`: is it called there, how deep is the block, how recent."""
    last = block.frames[-1].code if block.frames else None
    called = last is not None and frame.function.strip("<>") in last
    return not called, len(block.frames), block.last


def _named_exception(text: str) -> bool:
    """ "Name: message" whose name says that it is an exception, or is dotted."""
    found = _EXCEPTION.match(text)
    if not found:
        return False
    return bool(_EXCEPTION_NAME.search(found["name"])) or (
        "." in found["kind"] and found["name"][0].isupper()
    )


def innermost(found: Sequence[Traceback]) -> dict[int | None, Frame]:
    """The innermost frame of each rank's first traceback."""
    frames: dict[int | None, Frame] = {}
    for traceback in found:
        if traceback.root.frames:
            frames.setdefault(traceback.rank, traceback.root.frames[-1])
    return frames
