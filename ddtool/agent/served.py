"""Where the process that runs under a unit's name answers, and with which API key. It need not be one of ddtool's.

Of a service that somebody made by hand, only its own argument vector tells: before a takeover there is no release, and
until the first restart after it the release on disk is not what runs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import releases
from .client import Key
from .registry import Context

SERVER = re.compile(r"sglang[./]launch_server|/sglang$")
PORT = 30000  # SGLang's own, where none is given
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  where to ask a server that listens on all addresses
CONFIG_SIZE = 64 << 10
# A value in quotes, or as far as a blank: a comment may follow.
_SETTING = re.compile(r"""^(host|port|api[-_]key)\s*:[ \t]+("[^"\n]*"|'[^'\n]*'|[^\s"'#]\S*)""", re.MULTILINE)

Json = Dict[str, Any]


def where(ctx: Context, name: str, state: Json) -> Optional[Json]:
    """`{address, port, api_key}` of what runs, else of the release that is current; None when there is neither.

    `state`: the unit's `unit.state_of`.
    """
    if releases.started_from(ctx, name, int(state.get("main_pid") or 0)) is None:
        process = server_process(state)
        if process:
            return of_arguments(process["argv"], process["cwd"], name)
    return releases.current_gate(ctx, name)


def server_process(state: Json) -> Optional[Json]:
    """`{pid, argv, cwd}` of the unit's process that was started as the server: its oldest one with such arguments."""
    for item in sorted(state.get("processes", ()), key=lambda process: (process["start"], process["pid"])):
        try:
            argv = Path(f"/proc/{item['pid']}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            cwd = os.readlink(f"/proc/{item['pid']}/cwd")  # noqa: PTH115  Path.readlink is Python 3.9
        except OSError:
            continue
        if (
            argv
            and Path(argv[0]).name.startswith("python")
            and any(SERVER.search(word) for word in argv[1:4])
        ):
            return {"pid": item["pid"], "argv": argv, "cwd": cwd}
    return None


def of_arguments(argv: List[str], cwd: str, name: str) -> Json:
    """What `sglang.launch_server` with these arguments listens on; a `--config` file counts below them, as there."""
    flags = dict(_flags(argv))
    told = {**_configured(Path(cwd, flags["config"])), **flags} if "config" in flags else flags
    address, port, key = told.get("host", "127.0.0.1"), told.get("port", ""), told.get("api-key")
    return {
        "address": ANYWHERE.get(address, address),
        "port": int(port) if port.isdigit() else PORT,
        "api_key": Key(key, name) if key else None,
    }


def _flags(argv: List[str]) -> Iterator[Tuple[str, str]]:
    """`--name value` and `--name=value`, in order."""
    for word, following in zip(argv, [*argv[1:], ""]):  # noqa: B905  strict= is Python 3.10
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            yield flag[2:].replace("_", "-"), value if equals else following


def _configured(path: Path) -> Dict[str, str]:
    """The three settings, as far as they stand on lines of their own. The agent has no YAML."""
    try:
        with path.open(errors="replace") as file:
            text = file.read(CONFIG_SIZE)
    except OSError:
        return {}
    return {name.replace("_", "-"): value.strip("\"'") for name, value in _SETTING.findall(text)}
