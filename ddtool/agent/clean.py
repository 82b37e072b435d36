"""What a stopped service may leave behind, and what would make the next start fail: ports and GPU memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional

from . import client, unit
from .errors import PreflightError, Unhealthy

GPU_WAIT_S = 60.0
GPU_FREE_FRACTION = 0.10


def check_port_free(address: str, port: int) -> None:
    if not client.listening(address, port):
        return
    owner = port_owner(port)
    who = f"process {owner.pid} ({owner.title[:120]})" if owner else "a process that cannot be named"
    raise PreflightError(
        f"port {port} is taken by {who}", hint="stop it, or deploy with `--set service.port=ANOTHER`"
    )


def port_owner(port: int, likely: Iterable[int] = ()) -> Optional[unit.Process]:
    """The process that listens on a TCP port, found through its socket's inode.

    `likely`: pids to look at first. A host may have thousands of processes, each with hundreds of open files.
    """
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  faster by far
    for pid in chain(likely, others) if inodes else ():
        try:
            with os.scandir(f"/proc/{pid}/fd") as links:
                if any(os.readlink(link.path) in inodes for link in links):  # noqa: PTH115  Python 3.9
                    return unit.process(pid)
        except OSError:
            continue
    return None


def gpus() -> List[Dict[str, Any]]:
    """`{index, name, driver, memory_used_mib, memory_total_mib}` per GPU; [] without nvidia-smi."""
    rows = nvidia_smi("--query-gpu=index,name,driver_version,memory.used,memory.total")
    return [
        {
            "index": int(row[0]),
            "name": row[1],
            "driver": row[2],
            "memory_used_mib": int(row[3]),
            "memory_total_mib": int(row[4]),
        }
        for row in rows
        if len(row) == 5 and row[3].isdigit() and row[4].isdigit()
    ]


def nvidia_smi(query: str) -> List[List[str]]:
    if not shutil.which("nvidia-smi"):
        return []
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return []
    return [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def wait_gpu_memory_free(emit: Callable[..., None]) -> None:
    """After a stop: orphaned workers may still hold the cards, and the next start would run out of memory."""
    deadline = time.monotonic() + GPU_WAIT_S
    while True:
        busy = [
            card for card in gpus() if card["memory_used_mib"] > GPU_FREE_FRACTION * card["memory_total_mib"]
        ]
        if not busy:
            return
        if time.monotonic() > deadline:
            holders = ", ".join(
                f"pid {row[0]} ({row[1]} MiB)" for row in nvidia_smi("--query-compute-apps=pid,used_memory")
            )
            cards = ", ".join(str(card["index"]) for card in busy)
            raise Unhealthy(
                f"GPU memory is still in use {GPU_WAIT_S:.0f} s after the stop, on {cards}",
                hint=f"these processes hold it: {holders or 'nvidia-smi names none'}; end them and try again",
            )
        emit("waiting", what="GPU memory to become free", cards=[card["index"] for card in busy])
        time.sleep(2.0)
