"""Bytes kept by their sha256 in STATE/objects: baselines, patch definitions, copies of foreign files."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from .disk import digest, sha256
from .errors import AgentError
from .files import FileChange
from .registry import Context


def path(ctx: Context, sha: str) -> Path:
    return ctx.state / "objects" / sha


def has(ctx: Context, sha: str) -> bool:
    """Kept, and still the bytes that its name says."""
    return digest(path(ctx, sha)) == sha


def get(ctx: Context, sha: str) -> bytes:
    """The bytes. Raises AgentError when they are gone or damaged."""
    where = path(ctx, sha)
    try:
        content = where.read_bytes()
    except FileNotFoundError:
        raise AgentError(f"{where} is gone", "pass the release wheel: --wheel FILE, or adopt again") from None
    if sha256(content) != sha:
        raise AgentError(f"{where} is damaged", "pass the release wheel: --wheel FILE, or adopt again")
    return content


def keep(ctx: Context, content: bytes) -> Optional[FileChange]:
    """The change that stores these bytes, to go into the same file set; None when they are kept already."""
    sha = sha256(content)
    return None if has(ctx, sha) else FileChange(str(path(ctx, sha)), content, mode=0o600)
