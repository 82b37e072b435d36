"""What SGLang streams from /generate, read with as little work as the numbers need.

An event is `data: {"text", "output_ids", "meta_info": {"id", "finish_reason", "prompt_tokens", …, "completion_tokens",
"cached_tokens"}}`, then `data: [DONE]`; text and ids are of the whole completion so far, so events grow, and parsing
each would cost the square of its length. Of an event only `completion_tokens` is looked for, from its end; the last
one is kept and parsed. It alone has `spec_verify_ct`, `spec_correct_drafts_histogram` and the finish reason's object.

With `--incremental-streaming-output` text and ids are of the event alone. Numbers stay the same; the second event shows
which of the two it is, and such events, which do not grow, are all parsed, because the text is in all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, NamedTuple, Optional

DATA = b"data:"
DONE = b"[DONE]"
# A text that says so has its quotes escaped, so it cannot be taken for the field.
TOKENS = b'"completion_tokens"'
_COUNT = re.compile(rb'"completion_tokens":\s*(\d+)')
ERROR_CHARS = 500
MOST_TOKENS = 1 << 24  # of an answer; more than any context has, and numbers are made for each

Json = Dict[str, Any]


class Unreadable(ValueError):
    """An event that is none of SGLang's."""


class Piece(NamedTuple):
    """What an event says. text: None where it has none, as from a server without a tokenizer."""

    text: Optional[str]
    ids: List[Any]


class Answer:
    """The events of one request. `chunks`: `[[seconds since it was sent, completion tokens so far], …]`, one for each
    event with new tokens."""

    def __init__(self, keep_text: bool) -> None:
        self.sent = 0.0
        self.chunks: List[List[float]] = []
        self.tokens = 0
        self.error: Optional[str] = None
        self._last = b""
        self._seen = 0
        self._keep_text = keep_text
        self._pieces: Optional[List[Piece]] = None  # of an incremental stream

    def take(self, event: bytes, now: float) -> None:
        at = event.rfind(TOKENS)
        found = _COUNT.match(event, at) if at >= 0 else None
        if found is None:
            self._other(event)
            return
        tokens = int(found.group(1))
        if tokens > MOST_TOKENS:
            raise Unreadable(f"an answer of {tokens} tokens")
        if tokens > self.tokens:
            self.chunks.append([round(now - self.sent, 6), tokens])
            self.tokens = tokens
        self._seen += 1
        if self._pieces is not None:
            self._pieces.append(piece(parsed(event)))
        elif self._seen == 2:
            self._pieces = self._of_increments(event)
        self._last = event

    def _other(self, event: bytes) -> None:
        data = event.partition(DATA)[2].strip()
        if data and data != DONE:
            self.error = self.error or said(data)

    def _of_increments(self, second: bytes) -> Optional[List[Piece]]:
        """The first two events, if each has what it adds; None if the second has all of both."""
        one, two = parsed(self._last), parsed(second)
        if "output_ids" in two:
            adds = len(output_ids(two)) < self.tokens
        else:
            adds = not (piece(two).text or "").startswith(piece(one).text or "")
        return [piece(one), piece(two)] if adds else None

    def fields(self) -> Json:
        """Of a sample: its counts, how it finished, a digest of what was said, and (where kept) that itself."""
        last = parsed(self._last) if self._last else {}
        meta = last.get("meta_info") or {}
        if not isinstance(meta, dict):
            raise Unreadable(f"meta_info is not an object: {str(meta)[:ERROR_CHARS]}")
        finish = meta.get("finish_reason") or {}
        kind = finish.get("type") if isinstance(finish, dict) else str(finish)
        if kind == "abort" and self.error is None:
            self.error = f"the server aborted it: {str(finish.get('message'))[:ERROR_CHARS]}"
        found: Json = {
            "prompt_tokens": count(meta, "prompt_tokens"),
            "cached_tokens": count(meta, "cached_tokens"),
            "completion_tokens": self.tokens,
            "verify_ct": count(meta, "spec_verify_ct"),
            "finish": kind or None,
        }
        drafts = meta.get("spec_correct_drafts_histogram") or meta.get("spec_accept_histogram")
        if drafts:
            if not isinstance(drafts, list) or not all(isinstance(one, int) and one >= 0 for one in drafts):
                raise Unreadable(f"a histogram of drafts is {str(drafts)[:ERROR_CHARS]}")
            found["drafts_histogram"] = drafts
        pieces = [piece(last)] if self._pieces is None else self._pieces
        texts = [one.text for one in pieces if one.text is not None]
        found["output"] = digest("".join(texts)) if texts else None
        if self._keep_text:
            found["text"] = "".join(texts)
            found["output_ids"] = [token for one in pieces for token in one.ids]
        return found


def digest(text: str) -> str:
    """16 hex digits, as prompts have them. A surrogate that JSON left alone has one as well."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def parsed(event: bytes) -> Json:
    data = event.partition(DATA)[2]
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"an event is not JSON: {shown(data)}") from error
    if not isinstance(value, dict):
        raise Unreadable(f"an event is not an object: {shown(data)}")
    return value


def piece(event: Json) -> Piece:
    text = event.get("text")
    return Piece(text if isinstance(text, str) else None, output_ids(event))


def output_ids(event: Json) -> List[Any]:
    ids = event.get("output_ids") or []
    if not isinstance(ids, list):
        raise Unreadable(f"output_ids is not a list: {str(ids)[:ERROR_CHARS]}")
    return ids


def count(meta: Json, name: str) -> Optional[int]:
    value = meta.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise Unreadable(f"{name} is {str(value)[:ERROR_CHARS]}")


def said(body: bytes) -> str:
    """The message in an error's body, in each of the forms that SGLang gives it; else the body itself."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return shown(body)
    for key in ("error", "message", "detail"):
        while isinstance(value, dict) and key in value:
            value = value[key]
    return value[:ERROR_CHARS] if isinstance(value, str) else shown(body)


def shown(data: bytes) -> str:
    return data[:ERROR_CHARS].decode(errors="replace").strip()
