"""Bytes of a log → numbered raw lines → text as a person would have read it.

Numbers count "\\n" in the input, whatever else may look like a line end; text never contains one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from ddtool.agent.journal_text import unescaped

LINE_LIMIT = 1 << 20  # bytes kept of one line; what is longer loses its middle
_HEAD = LINE_LIMIT - (64 << 10)

# "Loading shards:  50% Completed | 1/2 [00:01<00:01,  1.2s/it]", with or without blocks: one state of a tqdm bar.
# Another process may write on behind it, because a bar ends without a line end.
_BAR = re.compile(
    r"[^\r\n]{0,200}?\d+%[^\[\r\n]{0,200}\[[\d:?]+<[^\]\r\n]{0,60}(?:it|s|B|toks|tok)/(?:s|it|B|tok)\b[^\]\r\n]{0,120}\]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f\x85\u2028\u2029]")
# Python refuses to read thousands of digits as a number; no log means one.
_ENDLESS_NUMBER = re.compile(r"(?<!\d)(\d{40})\d{200,}")
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def as_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text in UTF-8 if it opens with a UTF-16 byte order mark (PowerShell's `>`), else as it is."""
    blocks = iter(blocks)
    first = b""
    while len(first) < 3 and (block := next(blocks, b"")):
        first += block
    encoding = _UTF16.get(first[:2])
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")


def numbered(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """(1-based number, line without its "\\n") of everything; no line is longer than `LINE_LIMIT`."""
    number = 1
    begun = b""
    for block in blocks:
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield number, bounded(begun + line) if begun else line
            begun = b""
            number += 1
        begun = bounded(begun + rest) if begun else rest
    if begun:
        yield number, begun


def bounded(line: bytes) -> bytes:
    return line if len(line) <= LINE_LIMIT else line[:_HEAD] + line[_HEAD - LINE_LIMIT :]


def clean(raw: bytes) -> str:
    """Decoded, without colours and control characters other than tabs and carriage returns inside the line.

    Bytes that are not UTF-8 become U+FFFD, numbers without end are cut.
    """
    text = raw.decode("utf-8", "replace").rstrip("\r")
    if "\x1b" in text:
        text = unescaped(text).rstrip("\r")
    return countable(text if text.isprintable() else _CONTROL.sub("", text))


def countable(text: str) -> str:
    """`text`, in which every run of digits can be read as a number."""
    return _ENDLESS_NUMBER.sub(r"\1…", text) if len(text) > 240 else text


def spoken(text: str) -> str:
    """What a message says beside progress bars.

    Of the pieces between carriage returns the last that is neither blank nor a bar stays, wherever it stands:
    several processes write on the same line. So does what stands behind a bar.
    """
    if "\r" in text:
        pieces = [piece for piece in text.split("\r") if piece.strip()]
        said = [piece for piece in pieces if not _is_bar(piece)]
        text = (said or pieces or [""])[-1]
    if "%" in text and (bar := _BAR.match(text)):
        rest = text[bar.end() :]
        return rest.lstrip() if rest.strip() else text
    return text


def _is_bar(text: str) -> bool:
    bar = _BAR.match(text)
    return bar is not None and not text[bar.end() :].strip()
