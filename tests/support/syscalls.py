"""What a process did to a disk, from strace, and whether a power cut at any moment leaves something to go on from.

The kernel may write what was not flushed in any order, or not at all. So each act that relies on an earlier one must
find it flushed: the bytes of a file before its name, the names in a folder before what is done because of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat,open,creat,write,pwrite64,writev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat"
)
LINE = re.compile(r"^\d+\s+(\w+)\((.*)\)\s+= (-?\d+)")
PATHS = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
FD = re.compile(r"^\d+<(.*?)>")
ALIASES = {
    "openat": "open",
    "renameat": "rename",
    "renameat2": "rename",
    "unlinkat": "unlink",
    "mkdirat": "mkdir",
    "linkat": "link",
    "symlinkat": "symlink",
    "fdatasync": "fsync",
}
# Nobody relies on these: who watches, who waits, and room to spare.
UNIMPORTANT = ("/progress.jsonl", "/state/lock", "/state/reserve")
CHILD = """
import sys
from pathlib import Path
from support import plain_host
from ddtool.agent import executor
plain_host.without_systemd()
host = plain_host.PlainHost(Path(sys.argv[1]))
sys.exit(executor.run(host.ctx, sys.argv[2]))
"""


@dataclass(frozen=True)
class Call:
    name: str
    path: str
    target: str = ""  # of a rename or a link
    flags: str = ""


def trace(root: Path, ident: str, out: Path) -> list[Call]:
    """The acts below `root` of the executor of a transaction whose plan is there."""
    command = ["strace", "-f", "-y", "-s", "0", "-qq", "-o", str(out), "-e", f"trace={CALLS}"]
    run = [sys.executable, "-c", CHILD, str(root), ident]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *run], env=env, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    calls = [call for line in out.read_text().splitlines() if (call := parse(line))]
    return [call for call in calls if call.path.startswith(str(root)) and not call.path.endswith(UNIMPORTANT)]


def parse(line: str) -> Call | None:
    """None for a call that failed, or that only reads."""
    found = LINE.match(line)
    if not found or int(found[3]) < 0:
        return None
    name, arguments = ALIASES.get(found[1], found[1]), found[2]
    if name in ("write", "pwrite64", "writev", "ftruncate", "fsync"):
        fd = FD.match(arguments)
        return Call(name, fd[1].removesuffix(" (deleted)")) if fd else None
    paths = [
        os.path.normpath(f"{folder}/{path}" if path[:1] != "/" else path)
        for folder, path in PATHS.findall(arguments)
    ]
    if "AT_REMOVEDIR" in arguments:
        name = "rmdir"
    if name in ("open", "creat"):
        changes = name == "creat" or re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC)", arguments)
        return Call("open", paths[0], flags=arguments) if changes else None
    if name == "symlink":
        return Call(name, paths[1])
    return Call(name, paths[0], paths[1] if len(paths) > 1 else "")


@dataclass
class Disk:
    """What a power cut now might take back: bytes of files, and names in folders."""

    data: set[str] = field(default_factory=set)
    names: dict[str, set[str]] = field(default_factory=dict)  # folder → names that came or went
    removed: set[str] = field(default_factory=set)  # folders

    def change(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.names.setdefault(folder, set()).add(name)

    def flush(self, path: str) -> None:
        self.data.discard(path)
        for gone in [folder for folder in self.removed if folder.startswith(path + "/")]:
            self.names.pop(gone, None)  # nothing leads there any more
        self.names.pop(path, None)

    def pending(self) -> list[str]:
        return sorted(self.data) + sorted(
            f"{folder}/{name}" for folder in self.names for name in self.names[folder]
        )


@dataclass
class Checker:
    """The rules. `managed`: files that nobody may find half changed; `problems`: acts that broke a rule."""

    managed: set[str]
    problems: list[str] = field(default_factory=list)
    disk: Disk = field(default_factory=Disk)
    existing: set[str] = field(default_factory=set)

    def check(self, calls: list[Call]) -> list[str]:
        for call in calls:
            self._rules(call)
            self._apply(call)
        self._refuse("the end", self._unflushed(durable_at_the_end))
        return self.problems

    def _rules(self, call: Call) -> None:
        if call.name in ("rename", "link") and call.path in self.disk.data:
            self._refuse(f"{call.name} of {call.path}", ["its own bytes"])
        if call.name == "open" and call.path in self.managed:
            self._refuse("writing in place", [call.path])
        if call.name == "rename" and call.target in self.managed:
            self._refuse(f"a new {call.target}", self._unflushed(what_a_swap_rests_on))
        if call.name == "write" and call.path.endswith("/journal.jsonl"):
            self._refuse("a line of the journal", self._unflushed(what_a_line_rests_on))
        if call.name == "unlink" and call.path.endswith("/txn.open"):
            self._refuse("letting units start", self._unflushed(lambda path: path in self.managed))
        if call.name == "unlink" and call.path.endswith(".old"):
            self._refuse("dropping an old copy", self._unflushed(what_a_swap_rests_on))
        if call.name == "unlink" and call.path.endswith("/plan.json"):
            self._refuse("the end of the transaction", self._unflushed(durable_at_the_end))

    def _apply(self, call: Call) -> None:
        if call.name == "fsync":
            self.disk.flush(call.path)
        elif call.name in ("write", "pwrite64", "writev", "ftruncate", "truncate"):
            self.disk.data.add(call.path)
        elif call.name == "open":
            if (
                not Path(call.path).exists() or "O_EXCL" in call.flags
            ):  # it is gone again by now, or it was made here
                self.disk.change(call.path)
        else:
            if not call.path.endswith((".old", ".new")):  # what is dropped, nobody relies on
                self.disk.change(call.path)
            if call.target:
                self.disk.change(call.target)
            if call.name == "rename" and call.path in self.disk.data:
                self.disk.data.add(call.target)
            if call.name == "rmdir":
                self.disk.removed.add(call.path)
            if call.name in ("rename", "unlink"):
                self.disk.data.discard(call.path)

    def _unflushed(self, matters: object) -> list[str]:
        assert callable(matters)
        return [path for path in self.disk.pending() if matters(path)]

    def _refuse(self, what: str, paths: list[str]) -> None:
        if paths:
            self.problems.append(f"{what}: not flushed before: {', '.join(paths)}")


def what_a_swap_rests_on(path: str) -> bool:
    """The gate is shut, the set's journal says so, both copies are there. Its other files may be on their way."""
    return path.endswith(
        (".old", ".files.json", ".files.staging", ".files.undoing", ".files.done", "/txn.open")
    )


def what_a_line_rests_on(path: str) -> bool:
    """All of the step before it, but for what lies in the transaction's own folder."""
    return "/txn/" not in path and "__pycache__" not in path


def durable_at_the_end(path: str) -> bool:
    return what_a_line_rests_on(path) and not path.endswith("/audit.jsonl")
