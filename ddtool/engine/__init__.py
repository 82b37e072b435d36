"""What runs inside SGLang: DDTREE as a plugin, no file of SGLang edited.

A release carries these files as the top-level package `ddtool_engine`, with metadata through which SGLang finds the
entry point; so everything below imports relatively, and torch and SGLang only. This module itself needs neither.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "DDTREE"
"""The speculative algorithm, as SGLang's flags and code spell it."""

PACKAGE = "ddtool_engine"
RELEASES = ("0.5.12.post1", "0.5.13.post1")
"""SGLang releases whose worker generation `v1` adapts to; both are tested."""


def engine_id() -> str:
    """First 12 hex digits of the hash over the package's files: the engine's identity, the same on both sides."""
    return _digest(_sources())[:12]


def engine_files() -> dict[str, bytes]:
    """Relative path → bytes, for a folder on the service's PYTHONPATH: the package and its entry point."""
    sources = _sources()
    version = _digest(sources)[:12]
    info = f"{PACKAGE}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: ddtool-engine\nVersion: 0+{version}\n"
    return {
        **{f"{PACKAGE}/{path}": content for path, content in sources.items()},
        f"{info}/METADATA": metadata.encode(),
        f"{info}/entry_points.txt": f"[sglang.srt.plugins]\nddtree = {PACKAGE}.plugin:load\n".encode(),
    }


def _sources() -> dict[str, bytes]:
    root = Path(__file__).parent
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.py"))}


def _digest(sources: dict[str, bytes]) -> str:
    total = hashlib.sha256()
    for path, content in sources.items():
        total.update(f"{path}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()
