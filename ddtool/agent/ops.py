"""Importing this module registers every request that the agent answers."""

from importlib import import_module

LOADED = [
    import_module(f"{__package__}.{name}")
    for name in (
        "audit",
        "bundle",
        "contents",
        "diagnostics",
        "engine_check",
        "facts",
        "install",
        "journal",
        "look",
        "patch_diff",
        "read_unit",
        "service",
        "situation",
        "txn",
        "wheels",
    )
]
