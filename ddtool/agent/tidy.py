"""What would grow for ever in the state folder, kept small after each transaction: copies that nothing refers to any
more, and the audit. Releases, evidence, transactions and agents are bounded where they are written."""

from __future__ import annotations

import contextlib
import re
from typing import Set

from . import disk
from .audit import FILE
from .errors import AgentError
from .registry import Context

# Bytes that were overwritten by force, and patches and baselines that are gone from every ledger: for second thoughts.
LOOSE_OBJECTS, LOOSE_BYTES = 100, 64 << 20
AUDIT_BYTES = 1 << 20  # about 2,000 transactions; the newer half stays

_SHA = re.compile(r"[0-9a-f]{64}")


def state(ctx: Context) -> None:
    """Whoever calls it holds the lock, and no transaction is open: an open one may need what no ledger names.

    Raises nothing: the transaction is over, and its result is written.
    """
    with contextlib.suppress(OSError, AgentError):  # a disk in trouble is told by what had to be written
        loose_objects(ctx)
        long_audit(ctx)


def loose_objects(ctx: Context) -> None:
    """Objects that nothing refers to: of the newest LOOSE_OBJECTS, as many as LOOSE_BYTES hold, stay."""
    needed = referenced(ctx)
    found = [path for path in (ctx.state / "objects").glob("*") if path.name not in needed]
    total = 0
    for number, path in enumerate(sorted(found, key=lambda item: -item.stat().st_mtime)):
        total += path.stat().st_size
        if number >= LOOSE_OBJECTS or total > LOOSE_BYTES:
            disk.remove(path)


def referenced(ctx: Context) -> Set[str]:
    """Every sha256 that a ledger or a takeover names, whatever for and in whichever version of its format."""
    paths = [*ctx.state.glob("ledger/*.json"), *ctx.state.glob("services/*/adopted.json")]
    return {sha for path in paths for sha in _SHA.findall(path.read_text(errors="replace"))}


def long_audit(ctx: Context) -> None:
    path = ctx.state / FILE
    if not path.exists() or path.stat().st_size <= AUDIT_BYTES:
        return
    lines = path.read_bytes()[-AUDIT_BYTES // 2 :].partition(b"\n")[2]
    disk.atomic_write(path, lines, mode=0o600)
