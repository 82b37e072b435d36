"""Importing this module registers every request that the agent answers."""

from . import diagnostics, engine_check, facts, journal, service, txn

LOADED = (diagnostics, engine_check, facts, journal, service, txn)
