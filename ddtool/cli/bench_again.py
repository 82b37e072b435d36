"""What to type after a benchmark or a tuning run broke off, or its link did."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtool.bench.store import Folder


def kept(folder: Folder) -> str:
    return f"what was measured is kept; `{resuming(folder)}` goes on with the rest"


def resuming(folder: Folder) -> str:
    return "ddtool {} --resume {}".format(*going_on(folder))


def going_on(folder: Folder) -> tuple[str, str]:
    """The command that goes on with it, and by which run: what verifies a tuning run is resumed with that one."""
    how = folder.run["how"]
    name = str(how.get("verifies") or folder.path.name)
    return ("tune" if "tune" in how or "verifies" in how else "bench"), name


def attaching(folder: Folder) -> str:
    """The host goes on to the transaction's end, and `bench --attach` watches it; what comes then is tune's alone."""
    from ddtool.bench.host_run import ATTACH

    tunes = going_on(folder)[0] == "tune"
    return f"ddtool bench --attach shows how it goes; then {resuming(folder)}" if tunes else ATTACH
