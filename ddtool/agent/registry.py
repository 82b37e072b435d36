"""The table of requests that the agent answers, and where it keeps things."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple

from .errors import PreflightError

Handler = Callable[..., Any]
OPS: Dict[str, Handler] = {}


class Context(NamedTuple):
    """Folders of this host. Tests and hosts without systemd use others."""

    state: Path = Path("/var/lib/ddtool")
    run: Path = Path("/run/ddtool")
    units: Path = Path("/etc/systemd/system")


def require_own(ctx: Context) -> None:
    """PreflightError when somebody else could put other files where ddtool keeps its state, or other folders above it.

    What is read there is believed: agents to run, bytes to restore, transactions to undo.
    """
    for folder in (ctx.state, ctx.run):
        for one in dict.fromkeys((folder, folder.resolve(), *folder.parents, *folder.resolve().parents)):
            try:
                about = one.stat()
            except OSError:
                continue
            shared = about.st_mode & 0o022 and not (about.st_mode & stat.S_ISVTX and one != folder)
            if shared or about.st_uid not in (0, os.geteuid()):
                raise PreflightError(
                    f"{one} belongs to uid {about.st_uid} with mode {about.st_mode & 0o7777:o}: others than root may "
                    f"change what ddtool keeps in {folder}",
                    f"look at what is in it, then: chown root: {one} && chmod go-w {one}",
                )


def op(name: str) -> Callable[[Handler], Handler]:
    """Register `handler(ctx, **args)`. It returns JSON data, or is a generator for a stream.

    A streaming generator must yield at least once a second; `None` means "nothing new yet".
    """

    def add(handler: Handler) -> Handler:
        assert name not in OPS, f"two handlers for {name}"
        OPS[name] = handler
        return handler

    return add
