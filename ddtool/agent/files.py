"""One all-or-nothing change of several files, and the only code that changes a managed file.

    stage    journal NAME.files.staging, then the new bytes and a copy of the old bytes beside each target;
             rename the journal to NAME.files.json: from here on the set can be swapped
    swap     rename the new files over their targets (a file to remove is renamed to the new name)
    undo     rename the journal to NAME.files.undoing, rename the old copies back
    finish   rename the journal to NAME.files.done: committed; remove the old copies, then the journal

The journal's *name* is the phase, because a rename needs no space on a full disk. Each phase is durable
before the first act that depends on it, so after kill -9 or power loss `FileSet.load` knows what may have
happened, and undo, swap and finish can be called again.

The old bytes are kept as a copy, not as a hard link: undo must move the file's mtime forward, and on an inode
that a package cache shares between environments that would touch the others too. Nothing is written in place.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import disk
from .disk import atomic_write, digest, naming
from .errors import AgentError, Drift

__all__ = ["ABSENT", "FileChange", "FileSet", "atomic_write"]

ABSENT = "absent"
STAGING, STAGED, UNDOING, DONE = "staging", "json", "undoing", "done"


class FileChange(NamedTuple):
    """The wanted state of one file.

    path: absolute; a symlink is followed, its target is replaced; missing folders are made (0755)
    content: the new bytes; None removes the file
    mode: of a new file; an existing file keeps mode, owner and extended attributes, unless `owner` is given
    expect: sha256 (hex) of the bytes that must be there now, "absent", or None for no check
    owner: uid and gid; they and `mode` are then part of the wanted state, whatever is there now
    """

    path: str
    content: Optional[bytes]
    mode: int = 0o644
    expect: Optional[str] = None
    owner: Optional[Tuple[int, int]] = None


class Entry(NamedTuple):
    """One file in the journal. old_sha None: it was absent; new_sha None: it is to be removed."""

    path: str
    stem: str
    old_sha: Optional[str]
    new_sha: Optional[str]

    @property
    def target(self) -> Path:
        return Path(self.path)

    @property
    def new(self) -> Path:
        return Path(self.stem + ".new")

    @property
    def old(self) -> Path:
        return Path(self.stem + ".old")

    @property
    def foreign(self) -> Path:
        return Path(self.stem + ".foreign")

    def waits(self) -> bool:
        """Not swapped yet."""
        return self.new.exists() != (self.new_sha is None)


class FileSet:
    """See the module's docstring. `kept`: foreign versions that undo found and did not throw away."""

    def __init__(self, folder: Path, name: str, phase: str, entries: List[Entry], made: List[str]) -> None:
        self.folder = folder
        self.name = name
        self.phase = phase
        self.entries = entries
        self.made = made
        self.kept: List[str] = []

    @classmethod
    def stage(cls, folder: Path, name: str, changes: Sequence[FileChange]) -> FileSet:
        """Prepare everything; no target changes.

        Raises Drift naming the files that are not as expected, or an AgentError that names a path (no space,
        read-only, …); either way whatever it had begun is removed.
        """
        if not re.match(r"^[A-Za-z0-9_.-]+$", name):
            raise ValueError(f"not a name for a file set: {name!r}")
        if cls.load(folder, name) is not None:
            raise AgentError(f"the file set {name} is still open", "finish or undo it first")
        targets = _resolve(changes)
        entries = [_entry(name, n, path, change) for n, (path, change) in enumerate(targets.items())]
        files = cls(folder, name, STAGING, entries, _missing_folders(targets))
        files._write_journal()
        try:
            files._prepare(list(targets.values()))
        except BaseException:
            files.undo()
            raise
        return files

    @classmethod
    def load(cls, folder: Path, name: str) -> Optional[FileSet]:
        """The set that a crash left behind, in its phase; None when there is none."""
        for phase in (STAGING, STAGED, UNDOING, DONE):
            try:
                stored = json.loads((folder / f"{name}.files.{phase}").read_text())
            except FileNotFoundError:
                continue
            return cls(folder, name, phase, [Entry(**item) for item in stored["entries"]], stored["made"])
        return None

    def swap(self) -> None:
        """Put every new file in place; after a crash, the rest of them.

        Raises Drift when a target changed since it was staged: then call undo.
        """
        if self.phase != STAGED:
            raise AgentError(f"the file set {self.name} is {self.phase}: it can no longer be swapped")
        waiting = [entry for entry in self.entries if entry.waits()]
        _refuse([entry.path for entry in waiting if digest(entry.target) != entry.old_sha])
        for entry in waiting:
            with naming(entry.target):
                if entry.new_sha is not None:
                    entry.new.replace(entry.target)
                elif entry.old_sha is not None:
                    entry.target.replace(entry.new)
        self._flush()
        for entry in self.entries:
            disk.drop_bytecode(entry.target)

    def undo(self) -> None:
        """Every file as it was before, by renames only; from any point of stage, swap or an earlier undo."""
        if not self._journal().exists():
            return
        if self.phase == DONE:
            raise AgentError(f"the file set {self.name} is committed: it can no longer be undone")
        if self.phase == STAGED:
            self._enter(UNDOING)
        if self.phase == UNDOING:
            for entry in self.entries:
                with naming(entry.target):
                    self._put_back(entry)
            self._flush()
            for entry in self.entries:
                disk.drop_bytecode(entry.target)
        self._clean(unmake=True)

    def finish(self) -> None:
        """Commit: remove the old copies and the journal. After undo there is nothing left to do."""
        if not self._journal().exists():
            return
        if self.phase in (STAGING, UNDOING):
            self.undo()
            return
        if self.phase == STAGED:
            if any(entry.waits() and entry.new_sha != entry.old_sha for entry in self.entries):
                raise AgentError(f"the file set {self.name} is not swapped yet")
            self._enter(DONE)
        self._clean(unmake=False)

    def _prepare(self, changes: Sequence[FileChange]) -> None:
        for folder in reversed(self.made):
            with naming(Path(folder)):
                disk.make_dirs(Path(folder))
        for entry, change in zip(self.entries, changes):  # noqa: B905  strict= is Python 3.10
            with naming(entry.target):
                like = None if entry.old_sha is None else entry.target
                if like is not None:
                    content = like.read_bytes()
                    _refuse([entry.path] if disk.sha256(content) != entry.old_sha else [])
                    disk.write_new(entry.old, content, 0o600, like=like)
                if change.content is not None and change.owner is not None:
                    disk.write_new(entry.new, change.content, change.mode, owner=change.owner)
                elif change.content is not None:
                    disk.write_new(entry.new, change.content, change.mode, like=like)
        self._flush()
        self._enter(STAGED)

    def _put_back(self, entry: Entry) -> None:
        """Undo one entry. A target that is no longer what we put there is somebody's work, and is kept."""
        done = entry.old_sha is not None and not entry.old.exists()
        if entry.waits() or done:
            return
        found = digest(entry.target)
        foreign = found not in (None, entry.new_sha, entry.old_sha)
        if entry.old_sha is None:
            if foreign:
                self.kept.append(entry.path)
            else:
                disk.remove(entry.target)
            return
        if foreign:
            if not entry.foreign.exists():
                os.link(entry.target, entry.foreign)
            self.kept.append(str(entry.foreign))
        disk.set_later(entry.old, entry.target)
        disk.flush_file(entry.old)
        entry.old.replace(entry.target)

    def _clean(self, unmake: bool) -> None:
        for entry in self.entries:
            disk.remove(entry.new)
            disk.remove(entry.old)
        if unmake:
            for folder in self.made:
                disk.remove_empty(Path(folder, "__pycache__"))
                disk.remove_empty(Path(folder))
        self._flush()
        disk.remove(self._journal())
        disk.flush_folder(self.folder)

    def _flush(self) -> None:
        for folder in sorted({entry.target.parent for entry in self.entries}):
            if folder.is_dir():
                disk.flush_folder(folder)

    def _journal(self) -> Path:
        return self.folder / f"{self.name}.files.{self.phase}"

    def _write_journal(self) -> None:
        stored = {"entries": [entry._asdict() for entry in self.entries], "made": self.made}
        atomic_write(self._journal(), json.dumps(stored, indent=1).encode())

    def _enter(self, phase: str) -> None:
        before = self._journal()
        after = before.with_name(f"{self.name}.files.{phase}")
        before.replace(after)
        self.phase = phase
        disk.flush_folder(self.folder)


def _resolve(changes: Sequence[FileChange]) -> Dict[Path, FileChange]:
    """Real path → change, after checking every `expect`."""
    targets: Dict[Path, FileChange] = {}
    for change in changes:
        path = Path(change.path).resolve()
        if not Path(change.path).is_absolute() or path in targets:
            raise ValueError(f"a file set needs absolute paths, each once: {change.path}")
        if path.exists() and not path.is_file():
            raise AgentError(f"{path} is not a regular file")
        targets[path] = change
    _refuse(
        [
            str(path)
            for path, change in targets.items()
            if change.expect is not None and (digest(path) or ABSENT) != change.expect
        ]
    )
    return targets


def _refuse(changed: List[str]) -> None:
    if changed:
        raise Drift(
            "changed by someone else since this was planned: " + ", ".join(changed),
            "look at the change, then plan again",
        )


def _entry(name: str, n: int, path: Path, change: FileChange) -> Entry:
    new_sha = None if change.content is None else disk.sha256(change.content)
    return Entry(str(path), str(path.parent / f".ddtool-{name}-{n}"), digest(path), new_sha)


def _missing_folders(paths: Iterable[Path]) -> List[str]:
    """Folders to create, deepest first (the order in which undo removes them)."""
    missing = set()
    for path in paths:
        folder = path.parent
        while not folder.is_dir():
            missing.add(str(folder))
            folder = folder.parent
    return sorted(missing, key=len, reverse=True)
