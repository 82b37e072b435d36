"""The table of requests that the agent answers, and where it keeps things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict

Handler = Callable[..., Any]
OPS: Dict[str, Handler] = {}


@dataclass(frozen=True)
class Context:
    """Folders of this host. Tests and hosts without systemd use others."""

    state: Path = Path("/var/lib/ddtool")
    run: Path = Path("/run/ddtool")
    units: Path = Path("/etc/systemd/system")


def op(name: str) -> Callable[[Handler], Handler]:
    """Register `handler(ctx, **args)`. It returns JSON data, or is a generator for a stream.

    A streaming generator must yield at least once a second; `None` means "nothing new yet".
    """

    def add(handler: Handler) -> Handler:
        assert name not in OPS, f"two handlers for {name}"
        OPS[name] = handler
        return handler

    return add
