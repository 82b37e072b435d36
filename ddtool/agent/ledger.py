"""Who changed what in one package installation: a JSON file per installation, STATE/ledger/….json.

It is only ever written as one of the changes of the file set that changes the files it speaks of, so the two
cannot disagree.

    {schema, site,
     files: {NAME: {baseline: {id, kind: wheel|adopted, name, sha, dist, version, record},
                    patches: [{name, sha, who, when, why, expires}], sha}},
     baselines: {BASELINE: {files: {NAME: sha}, adopted: {who, when}}},
     retired: [{file, reason, when, …the entry}]}

`baseline.sha`, `sha`: bytes of the clean file and of the file as composed. `baseline.record`: what RECORD
said when the entry was made; when it says something else now, the package was upgraded underneath.
"""

from __future__ import annotations

import copy
import json
import time
from typing import Any, Dict, List, NamedTuple, Optional

from .disk import sha256
from .errors import AgentError
from .files import ABSENT, FileChange
from .record import Install
from .registry import Context

SCHEMA = "ddtool.ledger/1"
PRISTINE, BASELINE, OURS = "pristine", "baseline", "ours"
FOREIGN, MISSING, LOST, UNMANAGED = "foreign", "missing", "lost-by-upgrade", "unmanaged"

KEPT_RETIRED = 50

Json = Dict[str, Any]


class Ledger(NamedTuple):
    path: str
    data: Json
    loaded: Optional[str]
    """sha256 of the file that was read, None when there was none."""

    @classmethod
    def load(cls, ctx: Context, install: Install) -> Ledger:
        path = ctx.state / "ledger" / (sha256(str(install.root).encode())[:16] + ".json")
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            empty = {"schema": SCHEMA, "site": str(install.root), "files": {}, "baselines": {}, "retired": []}
            return cls(str(path), empty, None)
        data = json.loads(content)
        if data.get("schema") != SCHEMA:
            raise AgentError(f"{path} is {data.get('schema')}, not {SCHEMA}", "use the ddtool that wrote it")
        return cls(str(path), data, sha256(content))

    @property
    def files(self) -> Dict[str, Json]:
        files: Dict[str, Json] = self.data["files"]
        return files

    @property
    def baselines(self) -> Dict[str, Json]:
        baselines: Dict[str, Json] = self.data["baselines"]
        return baselines

    def patches(self, name: str) -> List[Json]:
        """The patches recorded for a file, in canonical order."""
        return copy.deepcopy(self.files.get(name, {}).get("patches", []))

    def retire(self, name: str, reason: str) -> None:
        """Take a file out of management; what was known stays for audit and is never restored."""
        entry = self.files.pop(name, None)
        if entry is not None:
            self.data["retired"].append({"file": name, "reason": reason, "when": now(), **entry})
            del self.data["retired"][:-KEPT_RETIRED]

    def change(self) -> Optional[FileChange]:
        """The change that writes this ledger, for the file set that does what it says; None: as on disk."""
        content = (json.dumps(self.data, indent=1, sort_keys=True) + "\n").encode()
        if sha256(content) == self.loaded:
            return None
        return FileChange(self.path, content, mode=0o600, expect=self.loaded or ABSENT)


def state(install: Install, entry: Optional[Json], name: str, found: Optional[str]) -> str:
    """The state of a file whose bytes have the sha256 `found` (None: it is not there)."""
    recorded = install.record.get(name)
    if found is None:
        return MISSING
    if entry is None:
        if install.unmanaged:
            return UNMANAGED
        return PRISTINE if found == recorded else FOREIGN
    baseline = entry["baseline"]
    if upgraded(install, entry, name):
        return LOST if found == recorded else FOREIGN
    if found == entry["sha"]:
        return OURS if entry["patches"] else BASELINE
    if found == baseline["sha"]:
        return BASELINE
    return LOST if found == recorded else FOREIGN


def upgraded(install: Install, entry: Json, name: str) -> bool:
    """The installed version is not the one the entry was made on. Files beyond the wheel have no version.

    A RECORD that is gone says nothing, so the version decides; where several versions are listed, it is neither.
    """
    recorded, baseline = install.record.get(name), entry["baseline"]
    if recorded is None and baseline["record"] is None:
        return False
    if not install.record:
        return bool(install.version != baseline["version"])
    return (recorded, install.version) != (baseline["record"], baseline["version"])


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def day(days_from_now: int) -> str:
    """A UTC date, as in `expires`."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() + days_from_now * 86400))
