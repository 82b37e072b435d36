"""Secret values never leave the host: every reply is cleaned by value before its bytes are written."""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Set
from urllib.parse import quote

from .registry import Context

MASK = "[secret]"


def secret_values(ctx: Context) -> List[str]:
    """The secrets of every release kept on this host, in every form, longest first so that no part of one survives."""
    values: Set[str] = set()
    for path in ctx.state.glob("services/*/releases/*/secrets.json"):
        try:
            values.update(json.loads(path.read_text()).values())
        except (OSError, ValueError):
            continue
    written = {form for value in values if value for form in forms(value)}
    return sorted(written, key=len, reverse=True)


def forms(value: str) -> Set[str]:
    """A value as logs hold it: itself, as Python and JSON quote it, in an address; and each of these inside JSON."""
    plain = {value, repr(value)[1:-1], *_in_json(value), quote(value, safe="")}
    return {form for item in plain for form in (item, *_in_json(item))}


def _in_json(value: str) -> List[str]:
    return [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]


def mask_bytes(data: bytes, values: Iterable[str]) -> bytes:
    """For a file of a bundle, which no reply shows as text."""
    for value in values:
        data = data.replace(value.encode(), MASK.encode())
    return data


class Redactor:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._stamp: Any = None
        self._values: List[str] = []

    def _refresh(self) -> None:
        stamp = []
        for folder in self._ctx.state.glob("services/*/releases"):
            stat = folder.stat()
            stamp.append((str(folder), stat.st_mtime_ns))
        if stamp != self._stamp:
            self._values = secret_values(self._ctx)
            self._stamp = stamp

    def clean(self, value: Any) -> Any:
        self._refresh()
        return self._clean(value) if self._values else value

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._values:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, dict):
            return {self._clean(key): self._clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(item) for item in value]
        return value
