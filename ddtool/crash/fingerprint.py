"""A stable name for "the same crash again". The version says by which rules it was made; old names never shift."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from ddtool.crash.model import Frame

VERSION = "1"
FRAMES = 5  # innermost of our own and SGLang's code; libraries below them change with every release

_OURS = re.compile(r"(?:^|/)(?:sglang|sgl_kernel|vllm|ddtool|flashinfer|dflash)\w*/")
_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:'\"()]+/)+")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_RANKED = re.compile(r"\b(rank|TP|DP|PP|EP|GPU)[ =:]?#", re.I)
_LENGTH = 160


def fingerprint(category: str, subcode: str | None, text: str, frames: Iterable[Frame]) -> str:
    """`f1-0123456789ab`: of category, sub-code, the message without its numbers, and the functions that failed."""
    own = [f"{_module(frame.path)}:{frame.function}" for frame in frames if _OURS.search(frame.path)]
    parts = [VERSION, category, subcode or "", plain(text), *own[-FRAMES:]]
    return f"f{VERSION}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def plain(text: str) -> str:
    """A message without what differs from one run to the next: folders, addresses, numbers, ranks."""
    text = _PATH.sub("", text)
    text = _NUMBER.sub("#", _HEX.sub("#", text))
    return _RANKED.sub(r"\1", text)[:_LENGTH].strip()


def _module(path: str) -> str:
    """The path from the package on: the last folder with such a name, since checkouts repeat it."""
    starts = [found.start() for found in _OURS.finditer(path)]
    return path[starts[-1] :].lstrip("/") if starts else path
