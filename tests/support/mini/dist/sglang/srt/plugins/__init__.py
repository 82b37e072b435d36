"""Loads and runs every entry point of the group, once per process. A plugin that fails is only logged."""

import logging
from importlib.metadata import entry_points

GROUP = "sglang.srt.plugins"
logger = logging.getLogger(__name__)
_loaded = False


def load_plugins():
    global _loaded
    if _loaded:
        return
    _loaded = True
    found = entry_points()
    for entry in found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ()):
        try:
            entry.load()()
            logger.info("Executed general plugin: %s", entry.name)
        except Exception:
            logger.exception("Failed to execute general plugin: %s", entry.name)
