"""The executor killed at random acts, and its recovery too: never a half-patched file, never a half-done set.

Real transactions (enable, disable, restore, a temporary one as `diag run` makes) run in a child process on a plain
folder. The child dies by SIGKILL at one act of its own on the disk, a write in the middle of it. Right after, every
file must be old or new, whole; after the next command's recovery the set must be. The default is a sample; `-m slow`
does 1,000 kills and prints what docs/results keeps.
"""

from __future__ import annotations

import collections
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import trap

from ddtool.agent import compose, executor, unit
from ddtool.agent.diagnostics import plan
from ddtool.agent.run import PROGRESS

from .test_diag import PAIR, PROBE, TRACE, A, B, Box
from .test_diag_machine import compose_here

PATCHES = {"trace": TRACE, "probe": PROBE, "pair": PAIR}
ACTS = 170  # a little more than the longest transaction here has, so that every act is as likely as any other
SECOND_KILL = 0.3  # of the recoveries are killed as well
SEED = int(
    os.environ.get("DDTOOL_SEED", "1")
)  # of the thousand; read here, since a test sees no such variable


class Kills:
    def __init__(self, root: Path, seed: int) -> None:
        self.box = Box(root)
        self.random = random.Random(seed)
        self.number = 0
        self.fired = root / "killed-at.json"
        self.longest = 0
        self.hits: list[dict[str, Any]] = []

    def one(self) -> None:
        """One transaction, killed somewhere; what the next command does, perhaps killed as well; then the check."""
        kind, request = self.draw()
        made = plan(self.box.ctx, request)
        old = self.files()
        new = {**old, **{path: change.content for change in made.changes if (path := change.path) in old}}
        ident = self.write(
            kind, [{"step": "compose", "title": kind, "request": request, "expect": made.digest}]
        )
        hit = self.killed(ident, self.random.randint(1, ACTS), kind)
        if hit:
            now = self.files()
            for path, content in now.items():
                assert content in (old[path], new[path]), f"{path} is half-patched: {hit}"
            self.recover(hit)
            self.hits.append({**hit, "kind": kind})
        now = self.files()
        assert now in (old, new), f"the set is half done: {hit}"
        if hit:
            self.hits[-1]["end"] = "finished" if now == new != old else "undone"
        assert kind != "temporary" or now == old, hit
        # A transaction's own folder is removed as a whole, ten transactions later.
        left = [path for path in self.box.venv.parent.rglob(".ddtool-*") if "txn" not in path.parts]
        assert not left and not (self.box.ctx.state / "txn.open").exists(), (hit, left)

    def draw(self) -> tuple[str, dict[str, Any]]:
        names = self.random.sample(sorted(PATCHES), self.random.randint(1, 3))
        request: dict[str, Any] = {"op": "toggle", "venv": str(self.box.venv), "who": "test"}
        kind = self.random.choice(["enable", "enable", "disable", "restore", "temporary"])
        if kind == "restore":
            return kind, {"op": "restore", "venv": str(self.box.venv)}
        if kind == "disable":
            return kind, {**request, "enable": [], "disable": names}
        return kind, {**request, "enable": [PATCHES[name] for name in names], "disable": []}

    def recover(self, hit: dict[str, Any]) -> None:
        if self.random.random() < SECOND_KILL:
            again = self.killed(self.write("settle", []), self.random.randint(1, 60), "settle")
            hit["recovery"] = again and again["act"]
        assert not self.killed(self.write("settle", []), 0, "settle")

    def write(self, kind: str, steps: list[dict[str, Any]]) -> str:
        self.number += 1
        ident = f"{self.number:06d}"
        folder = self.box.ctx.state / "txn" / ident
        folder.mkdir(0o700, parents=True)
        (folder / PROGRESS).touch()
        about = {"id": ident, "kind": kind, "unit": "unit", "who": "test", "why": None, "steps": steps}
        (folder / "plan.json").write_text(json.dumps({**about, "temporary": kind == "temporary"}))
        return ident

    def killed(self, ident: str, at: int, kind: str) -> dict[str, Any] | None:
        """Run a transaction in a child that dies at its `at`-th act (0: never); what it died at, None when it lived."""
        self.fired.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os._exit(doomed(lambda: executor.run(self.box.ctx, ident), at, self.fired))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            hit: dict[str, Any] = json.loads(self.fired.read_text())
            return hit
        assert os.waitstatus_to_exitcode(status) == 0, f"{kind} failed"
        self.longest = max(self.longest, int(self.fired.with_suffix(".count").read_text()))
        return None

    def files(self) -> dict[str, bytes | None]:
        return {str((self.box.site / name).resolve()): self.box.read(name) for name in (A, B)}


def doomed(work: Callable[[], int], at: int, fired: Path) -> int:
    trap.FIRED, trap.ACTS = str(fired), os.devnull
    deadly = trap.Trap("txn", at or 1 << 60, None)
    sys.addaudithook(deadly.audit)
    os.fsync, os.write, os.pwrite = deadly.fsync, deadly.write, deadly.pwrite
    status = work()
    deadly.off = True
    fired.with_suffix(".count").write_text(str(deadly.count))
    return status


def kill(root: Path, monkeypatch: pytest.MonkeyPatch, count: int, seed: int) -> dict[str, Any]:
    monkeypatch.setattr(compose.subprocess, "run", compose_here)
    monkeypatch.setattr(unit, "has_systemd", lambda: False)
    monkeypatch.setattr(trap, "real_fsync", lambda fd: None)  # SIGKILL loses no page cache
    kills = Kills(root, seed)
    begun = time.monotonic()
    while len(kills.hits) < count:
        kills.one()
    acts = collections.Counter(hit["act"].split(" ")[0] for hit in kills.hits)
    functions = collections.Counter(next(iter(hit["in"]), "-") for hit in kills.hits)
    return {
        "kills": len(kills.hits),
        "recoveries_killed": sum(bool(hit.get("recovery")) for hit in kills.hits),
        "transactions": kills.number,
        "acts_of_the_longest": kills.longest,
        "half_patched_files": 0,
        "half_done_sets": 0,
        "ends": dict(collections.Counter(hit["end"] for hit in kills.hits)),
        "by_kind": dict(collections.Counter(hit["kind"] for hit in kills.hits)),
        "by_act": dict(acts.most_common()),
        "by_function": dict(functions.most_common(12)),
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
    }


def test_a_sample_of_kill_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = kill(tmp_path, monkeypatch, 25, seed=4)
    assert set(said["ends"]) == {"finished", "undone"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_kill_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = kill(tmp_path, monkeypatch, 1000, seed=SEED)
    print(json.dumps(said, indent=1))
    assert said["kills"] == 1000
