"""Which module answers which request. Only that one is imported: most of a short request's time is imports."""

from __future__ import annotations

from importlib import import_module
from typing import Optional

from .registry import OPS, Handler

MODULES = {
    "audit": "audit",
    "baseline.list": "diagnostics",
    "baseline.show": "diagnostics",
    "baseline.wanted": "diagnostics",
    "bench.fetch": "bench",
    "bench.list": "bench",
    "crash.list": "bundle",
    "crash.note": "bundle",
    "crash.read": "bundle",
    "crash.take": "bundle",
    "diag.diff": "patch_diff",
    "diag.look": "look",
    "diag.preview": "diagnostics",
    "diag.state": "overview",
    "engine.check": "engine_check",
    "facts": "facts",
    "generate": "generate",
    "generate.rounds": "generate",
    "install.python": "install",
    "journal.read": "journal",
    "releases": "service",
    "releases.contents": "contents",
    "services": "situation",
    "situation": "situation",
    "status": "service",
    "txn.follow": "txn",
    "txn.run": "txn",
    "txn.stop": "txn",
    "unit.engine": "read_unit",
    "unit.read": "read_unit",
    "wheels.held": "wheels",
    "wheels.put": "wheels",
}


def handler(name: str) -> Optional[Handler]:
    """None for a request that this agent does not know."""
    if name not in MODULES:
        return None
    import_module(f"{__package__}.{MODULES[name]}")
    return OPS[name]
