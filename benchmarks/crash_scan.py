"""How fast a long log is scanned, as rates in one run: ours, Python's `re`, ripgrep and cat on the same file.

    python benchmarks/crash_scan.py [MEGABYTES]

The log is routine lines of a serving engine with a labelled crash now and then. Every arm is one process on one
core; `re` gets a slice, because it would take minutes. Peak memory of ours is printed last: it does not grow
with the file.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from ddtool.crash import source
from ddtool.crash.scan import relaxed
from ddtool.crash.signatures import catalogue

CASES = Path(__file__).parent.parent / "tests" / "data" / "crash_cases"
DECODE = (
    "[2026-05-21 {t} TP0] Decode batch, #running-req: {a}, #token: {b}, token usage: 0.{a:02d}, accept len: 4.92, "
    "accept rate: 0.62, cuda graph: True, gen throughput (token/s): {b}.40, #queue-req: 0, "
)
PREFILL = (
    "[2026-05-21 {t} TP0] Prefill batch, #new-seq: 1, #new-token: {b}, #cached-token: {a}, token usage: 0.01, "
    "#running-req: {a}, #queue-req: 0, "
)
ANSWER = '[2026-05-21 {t}] INFO:     127.0.0.1:{b} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
RE_SLICE = 2 << 20


def write(path: Path, megabytes: int) -> None:
    """About one crash in 16 MB, as a restart loop would have it."""
    routine = "".join(
        f"May 21 {index // 3600 % 24:02d}:{index // 60 % 60:02d}:{index % 60:02d} gpu-host sglang[48211]: "
        + (DECODE, PREFILL, ANSWER)[index * 7 % 3].format(
            t=f"10:{index // 60 % 60:02d}:{index % 60:02d}", a=index % 40, b=index * 7919 % 60000
        )
        + "\n"
        for index in range(80_000)
    ).encode()
    crashes = [yaml.safe_load(case.read_text())["log"].encode() for case in sorted(CASES.glob("[0-9]*.yaml"))]
    with path.open("wb") as file:
        index = 0
        while file.tell() < megabytes << 20:
            file.write(routine)
            file.write(crashes[index % len(crashes)])
            index += 1


def ours(path: Path) -> int:
    with path.open("rb") as file:
        return len(source.lines(file, catalogue().patterns()))


def alternation(path: Path) -> int:
    """One alternation, line by line."""
    wanted = re.compile(
        "|".join(f"(?:{relaxed(each).removeprefix('(?i)')})" for each in catalogue().patterns()).encode()
    )
    with path.open("rb") as file:
        return sum(wanted.search(line) is not None for line in file.read(RE_SLICE).split(b"\n"))


def ripgrep(path: Path) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(map(relaxed, catalogue().patterns())))
        file.flush()
        command = ["rg", "--threads=1", "--no-mmap", "--count", "--file", file.name, str(path)]
        return int(subprocess.run(command, check=False, capture_output=True).stdout or 0)


def cat(path: Path) -> int:
    return subprocess.run(f"cat {path} | cat >/dev/null", shell=True, check=True).returncode


def rate(arm: Callable[[Path], int], path: Path, size: int) -> tuple[float, int]:
    """MB a second of processor time (children's too), and what the arm found."""
    begun = time.process_time(), os.times().children_user + os.times().children_system
    found = arm(path)
    used = time.process_time() - begun[0] + os.times().children_user + os.times().children_system - begun[1]
    return size / (1 << 20) / used, found


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    arms = {"ddtool": ours, "re": alternation, "cat": cat} | (
        {"ripgrep": ripgrep} if shutil.which("rg") else {}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        write(path, megabytes)
        rates: dict[str, float] = {}
        for name, arm in arms.items():
            size = min(RE_SLICE, path.stat().st_size) if name == "re" else path.stat().st_size
            rates[name], found = rate(arm, path, size)
            print(f"{name:8} {rates[name]:8.1f} MB/s  {found} lines")
    print(f"ratio    {rates['ddtool'] / rates['re']:8.0f}  ddtool to re")
    print(f"memory   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:8} MB at most")


if __name__ == "__main__":
    main()
