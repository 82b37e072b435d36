"""Runs inside the service, in SGLang's main process and in every scheduler. Standard library only.

SGLang finds it through the entry point group `sglang.srt.plugins` (0.5.11 and later). It masks secrets where SGLang
prints its arguments, lets a signal dump the stacks of a process that hangs, and leaves a proof that it was loaded.
It must never hurt the service: whatever fails here is one log line.
"""

import faulthandler
import json
import logging
import os
import signal
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SECRET_FIELDS = ("api_key", "admin_api_key", "ssl_keyfile_password")
logger = logging.getLogger("ddtool.probe")


def load() -> None:
    """The plugin's entry point."""
    for task in (mask_secrets, leave_proof):
        try:
            task()
        except Exception as error:  # noqa: BLE001  a probe that fails must not take the service with it
            logger.warning("ddtool probe: %s failed: %r", task.__name__, error)


def mask_secrets() -> None:
    """SGLang logs `server_args=ServerArgs(… api_key='…' …)` at every start."""
    from sglang.srt.server_args import ServerArgs

    printed = ServerArgs.__repr__
    if getattr(printed, "ddtool_masks", False):
        return

    def masked(self: object) -> str:
        text = str(printed(self))
        for field in SECRET_FIELDS:
            value = getattr(self, field, None)
            if value:
                text = text.replace(repr(value), "'[secret]'").replace(str(value), "[secret]")
        return text

    masked.ddtool_masks = True  # type: ignore[attr-defined]
    ServerArgs.__repr__ = ServerArgs.__str__ = masked


def leave_proof() -> None:
    """`/run/ddtool/UNIT/PID-STARTTIME.json`, merged with what a patched file may have written before."""
    unit = os.environ.get("DDTOOL_UNIT")
    if not unit:
        return
    folder = Path(os.environ.get("DDTOOL_RUN", "/run/ddtool")) / unit
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    path = folder / f"{os.getpid()}-{start}.json"
    proof = {"patches": [], **(json.loads(path.read_text()) if path.exists() else {})}
    stacks = path.with_suffix(".stacks")
    register_stacks(stacks)
    proof.update(pid=os.getpid(), start=start, stacks=stacks.name, engine=engine_version())
    aside = path.with_suffix(".partial")
    aside.write_text(json.dumps(proof))
    aside.replace(path)


def engine_version() -> "str | None":
    """Identity of ddtool's engine in this process's path; None when the installed SGLang answers by itself."""
    try:
        return version("ddtool-engine")
    except PackageNotFoundError:
        return None


def register_stacks(path: Path) -> None:
    """SIGUSR2 writes the stacks of all threads, even while the GIL is held.

    To a file of its own: faulthandler writes piecemeal, and in the journal the ranks' stacks would be shuffled.
    """
    file = open(path, "wb", buffering=0, opener=partial(os.open, mode=0o600))  # noqa: SIM115  for good
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=True)
