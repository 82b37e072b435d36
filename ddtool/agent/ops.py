"""Importing this module registers every request that the agent answers."""

from . import (
    audit,
    bundle,
    contents,
    diagnostics,
    engine_check,
    facts,
    journal,
    look,
    patch_diff,
    service,
    situation,
    txn,
)

LOADED = (
    audit,
    bundle,
    contents,
    diagnostics,
    engine_check,
    facts,
    journal,
    look,
    patch_diff,
    service,
    situation,
    txn,
)
