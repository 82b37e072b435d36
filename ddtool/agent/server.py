"""Framed JSON on stdin and stdout: 4-byte big-endian length, then the object (shared format, version 1)."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time
from types import FrameType, GeneratorType
from typing import Any, Dict, Iterator, Optional

from .errors import AgentError, RequestTimeout, UsageError
from .ops import handler
from .redact import Redactor
from .registry import Context, require_own

IDLE_EXIT_S = 60.0
BEAT_S = 5.0
MAX_FRAME = 64 << 20


class Disconnected(Exception):
    pass


def read_exactly(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise Disconnected
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Server:
    def __init__(self, ctx: Context, stdin: int = 0, stdout: int = 1) -> None:
        self.ctx = ctx
        self.stdin = stdin
        self.stdout = stdout
        self.redactor = Redactor(ctx)

    def run(self) -> None:
        """Serve requests until the operator hangs up or is silent for a minute."""
        signal.signal(signal.SIGALRM, _deadline_passed)
        try:
            while self._readable(IDLE_EXIT_S):
                (size,) = struct.unpack(">I", read_exactly(self.stdin, 4))
                if size > MAX_FRAME:
                    raise Disconnected
                self._serve(json.loads(read_exactly(self.stdin, size)))
        except (Disconnected, BrokenPipeError):
            return

    def _readable(self, timeout: float) -> bool:
        return bool(select.select([self.stdin], [], [], timeout)[0])

    def _send(self, reply: Dict[str, Any]) -> None:
        data = json.dumps(self.redactor.clean(reply), separators=(",", ":")).encode()
        write_all(self.stdout, struct.pack(">I", len(data)) + data)

    def _serve(self, request: Dict[str, Any]) -> None:
        ident = request.get("id")
        try:
            answer = handler(request["op"])
            if answer is None:
                raise UsageError(f"this agent does not know the request {request['op']!r}")
            require_own(self.ctx)
            signal.setitimer(signal.ITIMER_REAL, float(request.get("deadline_s") or 30.0))
            try:
                result = answer(self.ctx, **request.get("args", {}))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if isinstance(result, GeneratorType):
                self._stream(ident, result)
            else:
                self._send({"id": ident, "ok": True, "result": result})
        except AgentError as error:
            self._fail(ident, error.name, error.message, error.hint)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            self._fail(ident, "DdtoolError", f"{request.get('op')}: {error}", None)
        except Exception as error:  # noqa: BLE001  the operator must see it, whatever it is
            self._fail(ident, "DdtoolError", f"{request.get('op')}: {type(error).__name__}: {error}", None)

    def _stream(self, ident: Any, items: Iterator[Any]) -> None:
        sent = time.monotonic()
        for item in items:
            if item is not None:
                self._send({"id": ident, "ok": True, "result": item})
                sent = time.monotonic()
            elif time.monotonic() - sent >= BEAT_S:
                self._send({"id": ident, "beat": True})
                sent = time.monotonic()
            if self._readable(0):  # the operator hung up, or wants something else: this stream is over
                break
        self._send({"id": ident, "ok": True, "end": True})

    def _fail(self, ident: Any, name: str, message: str, hint: Optional[str]) -> None:
        self._send({"id": ident, "ok": False, "error": {"class": name, "message": message, "hint": hint}})


def _deadline_passed(signum: int, frame: Optional[FrameType]) -> None:
    raise RequestTimeout("the request took longer than its deadline on the host")


def serve(ctx: Context) -> None:
    sys.stdout.flush()
    Server(ctx).run()
