"""The passphrase of a key file, from a person."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable

# Asks a person for the passphrase of a file. None: there is nobody to ask, or no answer.
Ask = Callable[[str], "str | None"]


def ask_at_terminal(path: str) -> str | None:
    """A passphrase typed without echo. Asks only where standard input is a terminal."""
    if not sys.stdin or not sys.stdin.isatty():
        return None
    try:
        return getpass.getpass(f"passphrase of {path}: ")
    except EOFError:
        return None
