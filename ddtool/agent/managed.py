"""One installation and the changes being planned for it. Reads only: the plan is carried out as one file set."""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from . import ledger, objects, record
from .disk import digest, sha256
from .errors import Drift, PreflightError
from .files import ABSENT, FileChange
from .ledger import Ledger
from .registry import Context

Json = Dict[str, Any]
BACKUP = re.compile(r"\.(bak|orig|old|save|rej)\b[\w.-]*$|~$", re.IGNORECASE)


class Plan:
    """Changes for one file set. `summary` is for people; `unknown` needs the operator's consent. `digest` is equal for
    two plans that do the same to the same bytes, whoever made them and when."""

    def __init__(self) -> None:
        self.changes: List[FileChange] = []
        self.summary: List[Json] = []
        self.diffs: Dict[str, str] = {}
        self.notes: List[str] = []
        self.unknown: List[Json] = []
        self.digest = ""


class Managed:
    """What the files of one installation are, and what they shall become."""

    def __init__(self, ctx: Context, venv: str, wheel_files: Optional[Mapping[str, bytes]] = None) -> None:
        self.ctx = ctx
        self.install = record.find(venv)
        self.ledger = Ledger.load(ctx, self.install)
        self.plan = Plan()
        self._wheel_files = dict(wheel_files or {})
        self._found: Dict[str, Optional[str]] = {}
        self._foreign: List[str] = []

    # What is there

    def found(self, name: str) -> Optional[str]:
        if name not in self._found:
            self._found[name] = digest(self.install.path(name))
        return self._found[name]

    def state(self, name: str) -> str:
        return ledger.state(self.install, self.ledger.files.get(name), name, self.found(name))

    def content(self, name: str) -> bytes:
        return self.install.path(name).read_bytes()

    def clean(self, name: str) -> Optional[bytes]:
        """The wheel's bytes of a file, proven by RECORD: from itself, the operator, the store, or a backup."""
        wanted = self.install.record.get(name)
        if wanted is None:
            return None
        given = self._wheel_files.get(name)
        if given is not None and sha256(given) == wanted:
            return given
        if objects.has(self.ctx, wanted):
            return objects.get(self.ctx, wanted)
        path = self.install.path(name)
        for candidate in (path, *backups_of(path)):
            if digest(candidate) == wanted:
                return candidate.read_bytes()
        return None

    def retire_lost(self) -> None:
        """Files that an upgrade replaced leave the ledger; nothing old is ever put over the new version."""
        for name in sorted(self.ledger.files):
            if self.state(name) == ledger.LOST:
                self.ledger.retire(name, "replaced by an upgrade")
                self.plan.notes.append(f"{name}: lost by upgrade; the new version's file stays as it is")

    def refuse_half_upgraded(self, names: Sequence[str]) -> None:
        """RECORD is of another version than the file's entry, and the file is not that version's."""
        entries = self.ledger.files
        torn = [n for n in names if n in entries and ledger.upgraded(self.install, entries[n], n)]
        if torn:
            if self.install.version is None:
                raise Drift(
                    f"{self.install.unmanaged}; it is not known what belongs to: {', '.join(torn)}",
                    "finish that install first (`pip install` of the version you want), then try again",
                )
            raise Drift(
                f"{self.install.dist} was upgraded to {self.install.version} around them: {', '.join(torn)}",
                "reinstall that version (or `ddtool restore --to wheel --wheel FILE --force`), then try again",
            )

    # What shall be

    def keep(self, content: bytes) -> str:
        """Store bytes along with the change; their sha256."""
        change = objects.keep(self.ctx, content)
        if change is not None and all(known.path != change.path for known in self.plan.changes):
            self.plan.changes.append(change)
        return sha256(content)

    def guard(self, name: str, force: bool) -> None:
        """A file that somebody else wrote is only replaced by force, and a copy is kept first."""
        if self.state(name) not in (ledger.FOREIGN, ledger.UNMANAGED):
            return
        if not force:
            self._foreign.append(name)
            return
        sha = self.keep(self.content(name))
        self.plan.notes.append(f"{name}: the foreign version is kept as {objects.path(self.ctx, sha)}")

    def refuse_foreign(self) -> None:
        if self._foreign:
            raise Drift(
                "not what the wheel or ddtool put there: " + ", ".join(self._foreign),
                "`ddtool baseline show` shows how it differs; `ddtool baseline adopt NAME` makes it the clean version",
            )

    def write(self, name: str, content: bytes, before: str) -> None:
        """Plan one file's new bytes. `before`: its state, for the summary.

        Raises PreflightError for a file that cannot be replaced, or that others may share: now, not after a stop.
        """
        path = self.install.path(name)
        if sha256(content) == self.found(name):
            return
        self._require_own(path)
        _require_writable(path)
        old = self.content(name) if self.found(name) else b""
        self.plan.diffs[name] = unified(old, content, name)
        self.plan.changes.append(FileChange(str(path), content, expect=self.found(name) or ABSENT))
        self._found[name] = sha256(content)
        self.plan.summary.append(self.row(name, before, sha256(content)))

    def _require_own(self, path: Path) -> None:
        """A link that leads out of the installation, to a package cache or a checkout, has other users."""
        real = path.resolve()
        if self.install.root.resolve() not in real.parents:
            raise PreflightError(
                f"{path} is a link to {real}, outside {self.install.root}: whoever shares that would be changed too",
                "reinstall the package as files (uv: --link-mode=copy), or name the environment that it belongs to",
            )

    def row(self, name: str, before: str, sha: str) -> Json:
        """A file's line in the summary, as the ledger will have it."""
        entry = self.ledger.files.get(name)
        return {
            "file": name,
            "path": str(self.install.path(name)),
            "before": before,
            "after": self.state(name),
            "sha256": sha,
            "baseline": entry["baseline"]["id"]
            if entry
            else f"wheel:{self.install.dist}-{self.install.version}",
            "patches": [patch["name"] for patch in self.ledger.patches(name)],
        }

    def done(self) -> Plan:
        """The plan with its ledger change and digest. Raises Drift for the foreign files met on the way."""
        self.refuse_foreign()
        files = sorted(
            (change.path, sha256(change.content or b""), change.expect or "") for change in self.plan.changes
        )
        entries = {
            name: [entry["baseline"]["id"], entry["sha"], [patch["sha"] for patch in entry["patches"]]]
            for name, entry in self.ledger.files.items()
        }
        self.plan.digest = sha256(json.dumps([files, entries], sort_keys=True).encode())
        change = self.ledger.change()
        if change is not None:
            self.plan.changes.append(change)
        return self.plan


def _require_writable(path: Path) -> None:
    """Root may write anything but a read-only mount and what is immutable; a rename needs both to allow it."""
    for one in (path.parent, path):
        if one.exists() and not os.access(str(one), os.W_OK):
            raise PreflightError(
                f"cannot write {one}: it is read-only, or immutable, for this user",
                "remount it writable, or `chattr -i`; ddtool needs root",
            )


def backups_of(path: Path) -> Iterator[Path]:
    """`.bak` and the like beside a file: listed and read, never changed."""
    if path.parent.is_dir():
        for sibling in sorted(path.parent.iterdir()):
            if sibling.name.startswith(path.name) and BACKUP.search(sibling.name) and sibling.is_file():
                yield sibling


def unified(old: bytes, new: bytes, name: str) -> str:
    """The diff as a person reads it; bytes that are not UTF-8 are replaced."""
    return patch_of(old, new, name).decode("utf-8", "replace")


def patch_of(old: bytes, new: bytes, name: str) -> bytes:
    """A unified diff that `git apply` takes in the package's parent folder, whatever the newlines and encoding."""
    lines = difflib.diff_bytes(
        difflib.unified_diff, _lines(old), _lines(new), f"a/{name}".encode(), f"b/{name}".encode()
    )
    return b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines
    )


def _lines(content: bytes) -> List[bytes]:
    """As diff and git count them: nothing but a newline ends a line."""
    return re.findall(rb"[^\n]*\n|[^\n]+", content)
