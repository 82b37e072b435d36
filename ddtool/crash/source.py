"""Any input → lines: files, pipes, `.gz`, `.zst`; plain text, JSON lines, journal JSON, our own records."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import BinaryIO, Protocol, cast

from ddtool.crash import structured
from ddtool.crash.lines import LINE_LIMIT, as_utf8, clean, countable, numbered
from ddtool.crash.model import Line
from ddtool.crash.prefixes import Peeled, peel

BLOCK = 256 << 10
WHOLE_LIMIT = 8 << 20  # bytes of text; what is longer is scanned for what matters

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def read(stream: BinaryIO) -> Iterator[Line]:
    """Every line of the input. Formats may be mixed; nothing in the input makes this fail."""
    return of_blocks(blocks(stream))


def lines(stream: BinaryIO, patterns: Sequence[str]) -> list[Line]:
    """What a verdict needs of the input: all of it if it is small, else what `scan.interesting` finds."""
    source = blocks(stream)
    begun: list[bytes] = []
    size = 0
    for block in source:
        begun.append(block)
        size += len(block)
        if size > WHOLE_LIMIT:
            from ddtool.crash import scan  # RE2 takes 30 ms to import, a short log less to read

            return list(of_raw(scan.interesting(chain(begun, source), patterns)))
    return list(of_blocks(begun))


def of_blocks(source: Iterable[bytes]) -> Iterator[Line]:
    """Every line of decompressed UTF-8 text."""
    return of_raw(numbered(source))


def of_raw(source: Iterable[tuple[int, bytes]]) -> Iterator[Line]:
    """Lines from (number, raw line); the numbers ascend and may have holes."""
    entries = structured.Entries()
    begun: dict[tuple[str | None, str | None], Peeled] = {}  # lines that a container's runtime cut
    for number, raw in source:
        if raw[:16].lstrip(b"\x1e \t").startswith((b"{", b"data: {")):
            found = entries.lines(number, raw)
            if found is not None:
                yield from found
                continue
        if line := _whole(peel(clean(raw)), begun):
            yield _of_peeled(number, line)
    yield from entries.rest()
    for line in begun.values():
        yield _of_peeled(number, line)


def _whole(line: Peeled, begun: dict[tuple[str | None, str | None], Peeled]) -> Peeled | None:
    """`line` behind what its stream has begun, or None while that is still not all."""
    if not line.stream:
        return line
    first = begun.pop((line.ident, line.stream), None)
    if first:
        first.text, first.partial = countable(first.text + line.text), line.partial
        line = first
    if line.partial and len(line.text) < LINE_LIMIT:
        begun[line.ident, line.stream] = line
        return None
    return line


def _of_peeled(number: int, line: Peeled) -> Line:
    return Line(
        number=number,
        text=line.text,
        source=line.source or "unit",
        unix_us=line.unix_us,
        pid=line.pid,
        rank=line.rank,
        level=line.level,
        ident=line.ident,
    )


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Decompressed blocks in UTF-8. A damaged archive gives what comes before the damage and then says so."""
    return as_utf8(_decompressed(stream))


def _decompressed(stream: BinaryIO) -> Iterator[bytes]:
    first = stream.read(BLOCK)
    if first.startswith(_GZIP):
        import gzip

        packed = cast(BinaryIO, _PushedBack(first, stream))
        yield from _until_damage(gzip.GzipFile(fileobj=packed), (OSError, EOFError, zlib.error))
    elif first.startswith(_ZSTD):
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        packed = cast(BinaryIO, _PushedBack(first, stream))
        yield from _until_damage(zstd.ZstdFile(packed), (zstd.ZstdError, OSError, EOFError))
    else:
        yield first
        while block := stream.read(BLOCK):
            yield block


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def _until_damage(packed: _Readable, errors: tuple[type[Exception], ...]) -> Iterator[bytes]:
    try:
        while block := packed.read1(BLOCK):
            yield block
    except errors as error:
        yield f"\nddtool: the compressed input is damaged from here on: {error}\n".encode()


class _PushedBack:
    """A stream whose beginning has been read already, for readers that go forward only."""

    def __init__(self, begun: bytes, stream: BinaryIO) -> None:
        self._begun = begun
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not self._begun:
            return self._stream.read(size)
        if size < 0:
            part, self._begun = self._begun + self._stream.read(), b""
        else:
            part, self._begun = self._begun[:size], self._begun[size:]
        return part
