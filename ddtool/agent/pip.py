"""Filling a new environment with pip: from wheels that were sent, or from the index that the host can reach.

Sent wheels need neither a network nor a pip on the host: pip itself is one of them, and runs from its own wheel.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List

from . import disk
from .errors import AgentError

Emit = Callable[..., None]
LOOK_S = 2.0
NAMES = "wheels"  # below a transaction's folder
SEEN = re.compile(r"^(?:Processing|Collecting) (?:\S*/)?(\S+)")


def install(args: Dict[str, Any], sent: Path, work: Path, emit: Emit) -> None:
    """A new environment at `args["path"]` with exactly the pinned requirements. See `install_steps.Install`.

    `sent`: the folder of wheels by sha256; `work`: a folder for this transaction's own files.
    """
    path, own = args["path"], args["installer"]
    bare = ["--without-pip"] if own else []
    _run([args["python"], "-I", "-m", "venv", *bare, path], {}, path, "cannot make an environment", emit)
    names = _by_name(args["wheels"], sent, work / NAMES)
    pins = work / "requirements.txt"
    disk.remove(pins)
    disk.write_new(pins, "".join(f"{line}\n" for line in args["requirements"]).encode(), 0o600)
    pip = [str(names / own / "pip")] if own else ["-m", "pip"]
    where = ["--no-index", "--find-links", str(names)] if own else _index(args["index"])
    # what the host's pip is configured with counts only where the host's index does
    env = {"PIP_CONFIG_FILE": os.devnull} if own else {}
    flags = ["--require-hashes", "--no-deps", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    command = [f"{path}/bin/python", "-I", *pip, "install", *flags, "--root-user-action=ignore", *where]
    _run([*command, "-r", str(pins)], env, path, "pip could not install the pinned set", emit)


def _index(index: str) -> List[str]:
    return [] if index == "default" else ["--index-url", index]


def _by_name(listed: List[Dict[str, str]], sent: Path, folder: Path) -> Path:
    """pip goes by file names, the store by sha256: links of the one to the other."""
    disk.make_dirs(folder, 0o700)
    for wheel in listed:
        link = folder / wheel["file"]
        disk.remove(link)
        link.symlink_to(sent / wheel["sha256"])
    return folder


def _run(command: List[str], env: Dict[str, str], path: str, failed: str, emit: Emit) -> None:
    """Run it to its end, however this ends: a pip that went on would write into what is being undone."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", **env},
        preexec_fn=lambda: os.umask(0o022) and None,  # an environment is not secret; `umask=` is Python 3.9
        cwd="/",
    )
    tail: Deque[str] = deque(maxlen=15)
    told = float("-inf")
    try:
        for line in _lines(process, path, emit):
            tail.append(line)
            seen = SEEN.match(line)
            if seen and time.monotonic() - told > LOOK_S:
                told = time.monotonic()
                emit("installing", what=seen.group(1))
        status = process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status:
        raise AgentError(
            f"{failed} (exit status {status}):\n" + "\n".join(tail), "ddtool doctor shows what the host lacks"
        )


def _lines(process: subprocess.Popen[bytes], path: str, emit: Emit) -> Iterator[str]:
    """Its output by lines. While it is silent, how many packages have arrived in the environment is told."""
    assert process.stdout
    fd, rest, told, at = process.stdout.fileno(), b"", 0, time.monotonic()
    while True:
        if select.select([fd], [], [], LOOK_S)[0]:
            part = os.read(fd, 1 << 16)
            if not part:
                break
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").rstrip()
        if time.monotonic() - at > LOOK_S:
            at, there = time.monotonic(), len(list(Path(path).glob("lib/python3*/site-packages/*.dist-info")))
            if there != told:
                told = there
                emit("installed", packages=there)
    if rest:
        yield rest.decode(errors="replace").rstrip()
