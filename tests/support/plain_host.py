"""A host that is a folder: an environment, ddtool's state, units. Transactions of every kind that writes, on it.

There is no systemd, so nothing starts and stops; all else is what the executor does on a real host.
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from support import mini, venvs
from support.world import PATCH

from ddtool.agent import compose, compose_script, executor, unit
from ddtool.agent.diagnostics import plan
from ddtool.agent.disk import sha256
from ddtool.agent.registry import Context
from ddtool.agent.run import PROGRESS

UNIT = "sglang-plain"
ADOPTED = "sglang/srt/speculative/spec_info.py"
PATCHED = [target["file"] for target in PATCH["targets"]]
Files = dict[str, str | None]
Step = dict[str, Any]


def without_systemd() -> None:
    """For a process that only runs transactions on folders: patches are composed in it, and no unit is touched."""
    sys.argv[0] = __file__  # in place of the agent's own zipapp, which a release keeps
    compose.subprocess = IN_PROCESS
    unit.has_systemd = lambda: False
    unit.systemctl = lambda *args, **options: ""


def _compose_here(command: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
    """The same code without a new interpreter."""
    stdin, sys.stdin = sys.stdin, io.StringIO(input)
    try:
        with redirect_stdout(io.StringIO()) as out:
            compose_script.main()
    finally:
        sys.stdin = stdin
    return subprocess.CompletedProcess(command, 0, out.getvalue(), "")


IN_PROCESS = SimpleNamespace(run=_compose_here)
"""For `compose.subprocess`: patches are composed without a new interpreter."""


class PlainHost:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / "venv"
        self.ctx = Context(state=root / "state", run=root / "run", units=root / "units")
        self.site = venvs.site(self.venv)
        self.unit_file = self.ctx.units / f"{UNIT}.service"
        self.record = self.ctx.state / "services" / UNIT / "service.json"

    def make(self) -> PlainHost:
        files = {name: data for name, data in mini.dist_files().items() if ".dist-info/" not in name}
        venvs.make(self.venv, files, mini.VERSION)
        self.ctx.units.mkdir()
        return self

    # What is there

    def files(self) -> Files:
        """Every managed file's hash, None where there is none. Dates in the ledger are left out."""
        paths = [self.site / name for name in (*PATCHED, ADOPTED)] + [self.unit_file, self.record]
        found: Files = {str(path): sha256(path.read_bytes()) if path.exists() else None for path in paths}
        ledgers = sorted(self.ctx.state.glob("ledger/*.json"))
        found["ledger"] = _undated(ledgers[0].read_bytes()) if ledgers else None
        return found

    def deployed(self) -> str | None:
        """The release that the unit's record names; it must be there, whole."""
        if not self.record.exists():
            return None
        ident = str(json.loads(self.record.read_text())["current"])
        folder = self.record.parent / "releases" / ident
        assert json.loads((folder / "release.json").read_text())["made"] == ident
        assert ident in self.unit_file.read_text()
        return ident

    def left_over(self) -> list[str]:
        """Temporary files, a shut gate. A transaction's own folder goes as a whole, ten transactions later."""
        left = [str(path) for path in self.root.rglob(".ddtool-*") if "txn" not in path.parts]
        return left + [str(path) for path in [self.ctx.state / "txn.open"] if path.exists()]

    # What can be done

    def kinds(self) -> list[str]:
        """Transactions that mean something now."""
        if not self.deployed():
            return ["deploy"]
        enabled = any(b"two-files" in (self.site / name).read_bytes() for name in PATCHED)
        found = ["deploy", "adopt", "temporary", "remove"]
        return [*found, "disable", "restore"] if enabled else [*found, "enable"]

    def plan(self, kind: str, number: int) -> dict[str, Any]:
        """The plan document of a transaction of this kind."""
        ident = f"{number:06d}"
        steps = {
            "deploy": self._deploy,
            "remove": self._remove,
            "settle": lambda number: [],
        }.get(kind, lambda number: [self._compose(kind, number)])(number)
        return {
            "id": ident,
            "kind": kind,
            "unit": UNIT,
            "who": "test",
            "why": None,
            "steps": steps,
            "temporary": kind == "temporary",
        }

    def after(self, document: dict[str, Any]) -> Files:
        """The managed files once this transaction has been carried out."""
        if document["temporary"]:
            return self.files()
        after = self.files()
        for step in document["steps"]:
            if step["step"] == "compose":
                for change in plan(self.ctx, step["request"]).changes:
                    key = "ledger" if "/ledger/" in change.path else change.path
                    if key in after and change.content is not None:
                        hashed = _undated if key == "ledger" else sha256
                        after[key] = hashed(change.content)
            elif step["step"] == "files":
                for item in step["files"]:
                    content = item["content"]
                    after[item["path"]] = content and sha256(base64.b64decode(content))
            elif step["step"] == "purge":
                after[str(self.record)] = after["ledger"] = None
        return after

    def write(self, document: dict[str, Any]) -> None:
        """As the serving agent leaves it for the executor."""
        folder = self.ctx.state / "txn" / document["id"]
        folder.mkdir(0o700, parents=True)
        (folder / PROGRESS).touch()
        (folder / "plan.json").write_text(json.dumps(document))

    def run(self, document: dict[str, Any]) -> int:
        self.write(document)
        return executor.run(self.ctx, document["id"])

    def _deploy(self, number: int) -> list[Step]:
        ident = f"{number:04d}-{Random(number).getrandbits(32):08x}"
        text = f"# made by ddtool\n[Service]\nExecStart=/bin/true {ident}\n"
        record = json.dumps({"schema": "ddtool.service/1", "unit": UNIT, "current": ident})
        release = {
            "step": "release",
            "id": ident,
            "salt": "salt",
            "secrets": {"KEY": "value"},
            "files": [
                {"path": f"engine/part{n}.py", "content": _base64(text * n), "mode": 0o600} for n in range(3)
            ],
            "meta": {"made": ident, "created_unix": 0.0},
        }
        files = [
            {"path": str(self.unit_file), "content": _base64(text), "mode": 0o644},
            {"path": str(self.record), "content": _base64(record), "mode": 0o600},
        ]
        return [release, {"step": "files", "title": "switch", "files": files}]

    def _remove(self, number: int) -> list[Step]:
        gone = [{"path": str(self.unit_file), "content": None, "mode": 0o644}]
        files = {"step": "files", "title": "remove the unit", "files": gone}
        return [self._compose("restore", number), files, {"step": "purge"}]

    def _compose(self, kind: str, number: int) -> Step:
        request: dict[str, Any] = {"op": "toggle", "venv": str(self.venv), "who": "test"}
        if kind in ("enable", "temporary"):
            request |= {"enable": [PATCH], "disable": []}
        elif kind == "disable":
            request |= {"enable": [], "disable": [PATCH["name"]]}
        elif kind == "restore":
            request = {"op": "restore", "venv": str(self.venv)}
        else:
            name = f"fork-{number}"
            request = {"op": "adopt", "venv": str(self.venv), "who": "test", "name": name, "files": [ADOPTED]}
        made = plan(self.ctx, request)
        return {"step": "compose", "title": kind, "request": request, "expect": made.digest}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _undated(content: bytes) -> str:
    return sha256(re.sub(rb'"(when|since|expires)": ?"[^"]*"', rb"", content))
