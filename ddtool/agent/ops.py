"""Importing this module registers every request that the agent answers."""

from . import bundle, diagnostics, engine_check, facts, journal, look, patch_diff, service, txn

LOADED = (bundle, diagnostics, engine_check, facts, journal, look, patch_diff, service, txn)
