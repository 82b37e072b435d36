"""A small service with the outside of SGLang: flags, log lines, processes and HTTP answers, but no model."""

from sglang.version import __version__

__all__ = ["__version__"]
