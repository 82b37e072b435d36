"""The text of users' requests in the service's log: it leaves the host only when asked for by name."""

from __future__ import annotations

import json
import re
from typing import Match

# SGLang's request log, as text and as JSON lines. The object's repr keeps a request on one line.
LOGGED = re.compile(
    r"""((?:Receive|Finish)(?:\ \w+)?:\ obj=|"event":\ ?"request\.[\w.]+".*?"obj":\ ?)(.+)""",
    re.DOTALL | re.VERBOSE,
)


def without_requests(text: str) -> str:
    """One logged line with what a request, or its answer, said taken out."""
    return LOGGED.sub(_removed, text) if "obj" in text else text


def _removed(found: Match[str]) -> str:
    return f"{found.group(1)}[{len(found.group(2))} characters of a request removed]"


def records_without_requests(lines: bytes) -> bytes:
    """The same for JSON lines of ddtool.record/1; all other fields stay."""
    return b"".join(_record(line) for line in lines.splitlines(keepends=True))


def _record(line: bytes) -> bytes:
    if b"obj" not in line:
        return line
    try:
        record = json.loads(line)
    except ValueError:  # the cap cut it
        return b""
    record["text"] = without_requests(record["text"])
    return json.dumps(record).encode() + b"\n"
