"""What is looked at when a run has ended: one file each, the most telling first, bounded in time and size.

It runs when the machine may be in its worst state: a command that hangs (nvidia-smi on a lost GPU cannot even be
killed), a full disk or a missing tool costs its own file and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

from . import facts, foreign, ledger, overview, record, redact, releases, unit
from .errors import AgentError
from .registry import Context
from .run_journal import journal_of_run

COMMAND_S = 10.0
# No further file is begun after that: the unit is not started again before its evidence is there.
ALL_S = 20.0
FILE_BYTES = 4 << 20
CUT = b"\n(cut here: %s)\n"

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")

JOURNAL = "journal.jsonl"
COMMANDS = {
    "kernel.txt": ["journalctl", "-k", "-n", "1000", "--no-pager", "-o", "short-iso"],
    "processes.txt": ["ps", "-eo", "pid,ppid,stat,rss,etimes,args"],
    "shm.txt": ["ls", "-la", "/dev/shm"],
    "disk.txt": ["df", "-h"],
    "inodes.txt": ["df", "-i"],
    "nvidia-smi.txt": ["nvidia-smi", "-q"],
}


def sources(ctx: Context, name: str, invocation: str) -> Iterator[Tuple[str, Callable[[], bytes]]]:
    """File names and what makes their bytes, in the order of their worth."""
    service = unit.service(name)
    release = releases.current_id(ctx, name) or ""
    folder = releases.folder(ctx, name, release)
    yield JOURNAL, lambda: journal_of_run(service, invocation)
    yield "unit.txt", lambda: run(["systemctl", "show", service])
    yield "unit-files.txt", lambda: run(["systemctl", "cat", "--no-pager", service])
    yield "status.txt", lambda: run(["systemctl", "status", "--no-pager", "-n", "0", service])
    yield "argv.txt", lambda: argv(name)
    yield "environment.txt", lambda: environment(name, folder)
    if release:
        yield "config.yaml", (folder / "config.yaml").read_bytes
        yield "release.json", (folder / "release.json").read_bytes
    yield "memory.txt", lambda: Path("/proc/meminfo").read_bytes()
    for filename, command in COMMANDS.items():
        if shutil.which(command[0]):
            yield filename, lambda command=command: run(command)  # type: ignore[misc]
    venv = releases.meta(ctx, name, release).get("venv") if release else None
    if venv:
        yield "installation.json", lambda: installation(ctx, venv)


def gather(ctx: Context, name: str, invocation: str, folder: Path) -> Iterator[str]:
    """Write what can be had into `folder`, without secrets; each file's name when it is there."""
    secrets = redact.secret_values(ctx)
    until = time.monotonic() + ALL_S
    masks = foreign_secrets(name)
    for filename, make in sources(ctx, name, invocation):
        if time.monotonic() > until:
            return
        try:
            data = make()
        except (OSError, AgentError, ValueError) as error:
            data = f"not to be had: {error}\n".encode()
        data = redact.mask_bytes(data, secrets)
        if filename.endswith(".txt"):
            text = data.decode(errors="replace")
            masks.learn([text])
            data = masks.clean(text).encode()
        else:
            data = redact.mask_bytes(data, masks.written())
        (folder / filename).write_bytes(data)
        yield filename


def foreign_secrets(name: str) -> foreign.Masks:
    """What a unit's settings say in plain text: a drop-in of its owner has secrets that no release knows of."""
    masks = foreign.Masks()
    try:
        masks.learn(
            text.decode(errors="replace")
            for text in (run(["systemctl", "cat", "--no-pager", unit.service(name)]), argv(name))
        )
    except (OSError, AgentError):
        return masks
    return masks


def run(command: List[str], seconds: float = COMMAND_S, most: int = FILE_BYTES) -> bytes:
    """What a command prints, cut where it takes too long or too much. It is not waited for after that."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    fd, data, until = process.stdout.fileno(), b"", time.monotonic() + seconds
    cut = b""
    while not cut:
        left = until - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            cut = CUT % b"the command did not end in time"
            break
        part = os.read(fd, 1 << 16)
        if not part:
            break
        data += part
        if len(data) > most:
            cut = CUT % b"it goes on"
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    return data[:most] + cut


def argv(name: str) -> bytes:
    """What the unit says, and what really runs of it."""
    lines = [unit.systemctl("show", unit.service(name), "-p", "ExecStart", "--value").strip()]
    lines += [f"{process.pid} {process.title}" for process in unit.processes(name)]
    return ("\n".join(lines) + "\n").encode()


def environment(name: str, release: Path) -> bytes:
    """The main process's, else what the unit and the release give it: values of telling names are masked."""
    main = unit.show(name).get("MainPID") or "0"
    try:
        text = Path("/proc", main, "environ").read_bytes().decode(errors="replace").replace("\0", "\n")
    except OSError:
        shown = unit.systemctl("show", unit.service(name), "-p", "Environment", "--value")
        secret_part = release / "env"
        text = shown.replace(" ", "\n") + (secret_part.read_text() if secret_part.exists() else "")
    return "".join(f"{masked(line)}\n" for line in sorted(text.splitlines()) if "=" in line).encode()


def masked(assignment: str) -> str:
    variable, _, value = assignment.partition("=")
    hidden = redact.MASK if SECRET_NAME.search(variable) and value else URL_LOGIN.sub(redact.MASK, value)
    return f"{variable}={hidden}"


def installation(ctx: Context, venv: str) -> bytes:
    """The wheel against its RECORD, versions, managed files and patches, and the ledger itself."""
    about: Dict[str, Any] = {
        "venv": venv,
        "dists": facts.versions(record.site_packages(venv)),
        "sglang": facts.wheel_facts(Path(venv)),
        "diagnostics": overview.overview(ctx, venv),
        "ledger": ledger.Ledger.load(ctx, record.find(venv)).data,
        "standins": facts.standins(Path(venv)),
    }
    return json.dumps(about, indent=1).encode()
