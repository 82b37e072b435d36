"""How far a pass is, told by the lines that the load client writes."""

from __future__ import annotations

import time
from typing import Any, Dict

Json = Dict[str, Any]


class Tally:
    """Takes the lines of one pass in order. `spec`: as `load.run_pass` takes it."""

    def __init__(self, spec: Json) -> None:
        self._spec = spec
        self._done = self._tokens = self._errors = 0
        self._begun = time.monotonic()

    def add(self, line: Json) -> Json:
        """What a `pass` event says from this line on: `{pass, done, of, errors, tok_s, seconds}`."""
        if line["kind"] == "begin":
            self._begun = time.monotonic()
        elif line["kind"] == "sample":
            self._done += 1
            self._tokens += line["completion_tokens"]
            self._errors += line["error"] is not None
        seconds = line["seconds"] if line["kind"] == "end" else time.monotonic() - self._begun
        return {
            "pass": self._spec["pass"],
            "done": self._done,
            "of": len(self._spec["requests"]),
            "errors": self._errors,
            "tok_s": round(self._tokens / seconds, 1) if seconds > 0 else None,
            "seconds": round(seconds, 3),
        }
