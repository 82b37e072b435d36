"""The rounds of one request, as ddtool's engine reports them where a file waits for it: no restart, no switch."""

from __future__ import annotations

import json
import os
import secrets
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from . import careful, client, disk
from .registry import Context

MOST_BYTES = 48 << 20  # they travel in one frame
TRACED = "ddtool-rounds-"
"""How the id of a traced request starts; the engine looks at no others. The rest is 16 hex digits."""


class RoundTrace:
    """While it is open, rounds of the request with id `rid` are kept. `unit`: the service that will answer it."""

    def __init__(self, ctx: Context, unit: str) -> None:
        self.rid = TRACED + secrets.token_hex(8)
        self._path = ctx.run / unit / f"{self.rid}.jsonl"

    def __enter__(self) -> RoundTrace:
        disk.make_dirs(self._path.parent, 0o700)
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        disk.remove(self._path)

    def lines(self) -> List[Dict[str, Any]]:
        """The verify trace's objects in order. Empty when no engine of ours answered, or no round was needed."""
        text = careful.read(self._path, MOST_BYTES).decode(errors="replace")
        return [json.loads(line) for line in text.split("\n")[:-1]]


def texts(spec: Dict[str, Any], tokens: List[int], timeout: float) -> Dict[str, str]:
    """What the server's tokenizer makes of each token alone, by token id; {} when it does not say.

    spec: the gate's, for address, port and key.
    """
    payload = {"tokens": [[token] for token in tokens], "skip_special_tokens": False}
    answer = client.request(
        spec["address"], spec["port"], "/detokenize", payload, spec.get("api_key"), timeout
    )
    if answer.status != 200 or not isinstance(answer.body, dict):
        return {}
    decoded = answer.body.get("text", [])
    return {str(token): decoded[index] for index, token in enumerate(tokens) if index < len(decoded)}
