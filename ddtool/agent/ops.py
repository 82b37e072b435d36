"""Importing this module registers every request that the agent answers."""

from . import diagnostics, facts, journal, service, txn

LOADED = (diagnostics, facts, journal, service, txn)
