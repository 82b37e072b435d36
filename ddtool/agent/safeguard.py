"""What undoes an experiment when its executor cannot: `agent.pyz settle`, after a kill and at the next boot.

A deploy that breaks off waits for the next command, because then somebody looks. An experiment has put code into
the service that must not stay, and its operator may have left. So `settle` runs as `ExecStopPost=` of the executor's
unit, and as a unit of its own that a drop-in makes part of the next boot.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import List

from . import disk, releases, unit
from .names import HEADER
from .registry import Context

UNIT = "ddtool-settle.service"


def command(ctx: Context, agent: Path) -> List[str]:
    python = shutil.which("python3") or sys.executable
    folders = ["--state", str(ctx.state), "--run", str(ctx.run), "--units", str(ctx.units)]
    return [python, "-I", str(agent), "settle", *folders]


def running(ctx: Context, name: str) -> Path:
    """There while an experiment with the unit runs, and gone after a reboot: the drop-in's condition."""
    return ctx.run / name / "experiment"


def arm(ctx: Context, name: str) -> None:
    """From here on the next boot settles first; and the unit starts only while this mark is there."""
    line = " ".join(map(shlex.quote, command(ctx, releases.running_agent())))
    text = (
        f"{HEADER}: here while an experiment runs, and gone with it\n"
        "[Unit]\nDescription=ddtool: undo the experiment that this host's restart interrupted\n"
        "Wants=network-online.target\nAfter=network-online.target\n"
        f"[Service]\nType=exec\nExecStart={line}\n"
    )
    for path, content in ((ctx.units / UNIT, text), (_wish(ctx), f"[Unit]\nWants={UNIT}\n")):
        disk.make_dirs(path.parent)
        disk.atomic_write(path, content.encode(), mode=0o644)
    mark = running(ctx, name)
    disk.make_dirs(mark.parent)
    disk.remove(mark)  # whatever lies there: the folder may be the service's, and a link would lead elsewhere
    disk.write_new(mark, b"", 0o600)


def wish_folder(ctx: Context) -> Path:
    """Of every package's drop-ins for the boot's target: often there already, seldom empty."""
    return ctx.units / "multi-user.target.d"


def disarm(ctx: Context, name: str, *, keep_folder: bool) -> None:
    """Also what a kill in the middle of `arm` left. `keep_folder`: `wish_folder` was there before `arm`."""
    disk.remove(running(ctx, name))
    wish = _wish(ctx)
    for path in (wish, ctx.units / UNIT):
        for one in (path, *path.parent.glob(f".ddtool-*-{path.name}")):
            disk.remove(one)
    if not keep_folder:
        disk.remove_empty(wish.parent)
    unit.systemctl("daemon-reload")


def _wish(ctx: Context) -> Path:
    return wish_folder(ctx) / "ddtool-settle.conf"
