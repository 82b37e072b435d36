"""Importing this module registers every request that the agent answers."""

from . import (
    audit,
    bundle,
    contents,
    diagnostics,
    engine_check,
    facts,
    install,
    journal,
    look,
    patch_diff,
    read_unit,
    service,
    situation,
    txn,
    wheels,
)

LOADED = (
    audit,
    bundle,
    contents,
    diagnostics,
    engine_check,
    facts,
    install,
    journal,
    look,
    patch_diff,
    read_unit,
    service,
    situation,
    txn,
    wheels,
)
