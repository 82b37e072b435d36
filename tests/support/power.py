"""A Linux kernel as a process (user-mode Linux) with a real ext4 image, whose power can be cut: SIGKILL.

What its kernel had not written to the image by then is lost, and what it had is there, in the order it chose.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.plain_host import PlainHost

Said = dict[str, Any]
TESTS = Path(__file__).parents[1]
# Nothing reaches the disk unless it is flushed (commit every 5 minutes), or all of it soon; and no help for programs
# that rename without flushing.
MOUNTS = ("data=writeback,noauto_da_alloc,commit=300", "data=ordered,commit=1")
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mkdir /mnt/disk
mount -t ext4 -o {mount} /dev/ubda /mnt/disk || echo 'POWER {{"event": "failed", "why": "the disk does not mount"}}'
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={path}
exec {python} {inside} {order}
"""


def kernel() -> str | None:
    """User-mode Linux's program (Debian: user-mode-linux), or where UML_PROGRAM says it is."""
    return os.environ.get("UML_PROGRAM") or shutil.which("linux.uml")


class Machine:
    """`folder` holds its disk and orders. Boots from this machine's own files, read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk.img"
        content = folder / "content"
        content.mkdir()
        (content / "host").mkdir()
        PlainHost(content / "host").make()
        with self.disk.open("wb") as image:
            image.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-d", str(content), str(self.disk)], check=True)

    @contextmanager
    def booted(self, order: Said, mount: str) -> Iterator[Iterator[Said]]:
        """What it says from boot on; the power is cut at the end of the block."""
        (self.folder / "order.json").write_text(json.dumps(order))
        init = self.folder / "init"
        words = {
            "mount": mount,
            "path": os.pathsep.join([str(TESTS), *filter(None, sys.path)]),
            "python": sys.executable,
            "inside": TESTS / "support" / "power_inside.py",
            "order": self.folder / "order.json",
        }
        init.write_text(INIT.format(**words))
        init.chmod(0o755)
        program = kernel()
        assert program
        arguments = "mem=256M rootfstype=hostfs rootflags=/ ro con=null con0=fd:0,fd:1 quiet"
        arguments += f" init={init} ubd0={self.disk}"
        running = subprocess.Popen(
            [program, *arguments.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            yield self._said(running)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            assert running.stdout
            running.stdout.close()

    def _said(self, running: subprocess.Popen[str]) -> Iterator[Said]:
        assert running.stdout
        for line in running.stdout:
            if line.startswith("POWER "):
                yield json.loads(line[6:])


def cut_often(machine: Machine, cuts: int, seed: int, acts: int) -> list[Said]:
    """One transaction a boot, cut somewhere; the next boot recovers. `{kind, act, within, end, mount}` of each."""
    expected: Said | None = None
    done: list[Said] = []
    for number in range(1, cuts + 2):
        mount = MOUNTS[number % len(MOUNTS)]
        order = {"number": 2 * number, "seed": seed, "acts": acts, "expected": expected}
        with machine.booted(order, mount) as said:
            for item in said:
                assert item["event"] != "failed", (item["why"], done[-1:])
                if item["event"] == "recovered":
                    done[-1]["end"] = item["end"]
                elif item["event"] == "begin":
                    expected = {"old": item["old"], "new": item["new"], "reported": False}
                    done.append({"kind": item["kind"], "mount": mount})
                else:  # the cut, or the end: the power goes a little later
                    assert expected
                    expected["reported"] = bool(item.get("ok")) and not item["temporary"]
                    done[-1].update(act=item.get("act", "after the end"), within=item.get("within"))
                    time.sleep((number * 37 % 100) / 1000 * (10 if "commit=1" in mount else 1))
                    break
            else:
                raise AssertionError(f"it ended by itself: {done[-1:]}")
    return done[:-1]  # nobody has looked at what the last one left
