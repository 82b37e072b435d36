"""Any sequence of adopt, enable, disable, restore, foreign edit, upgrade and kill keeps the promises.

After `restore` every managed file is its baseline, or the refusal names it; a foreign file is never overwritten
without force, and with force a copy is kept.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support import venvs

from ddtool.agent import compose, compose_script, ledger, objects
from ddtool.agent.disk import sha256
from ddtool.agent.errors import AgentError, Drift
from ddtool.agent.files import FileSet
from ddtool.agent.managed import Managed, Plan

from .test_diag import NEXT, PAIR, PROBE, TRACE, WHEEL, A, B, Box

PATCHES = {"trace": TRACE, "probe": PROBE, "pair": PAIR}
DISK_EVENTS = {"open", "os.rename", "os.remove", "os.utime", "os.mkdir", "os.chmod"}
FILE = st.sampled_from([A, B])


class Host(RuleBasedStateMachine):
    @initialize()
    def install(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ddtool-machine-"))
        self.box = Box(self.root)
        self.version = "0.5.12.post1"
        self.foreign: dict[str, bytes] = {}  # what somebody wrote and we may not lose
        self.edits = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @rule(
        on=st.sets(st.sampled_from(sorted(PATCHES)), max_size=2),
        off=st.sets(st.sampled_from(sorted(PATCHES)), max_size=2),
    )
    def toggle(self, on: set[str], off: set[str]) -> None:
        self.attempt("toggle", enable=[PATCHES[name] for name in sorted(on)], disable=sorted(off - on))

    @rule(force=st.booleans())
    def restore(self, force: bool) -> None:
        if self.attempt("restore", force=force) is None:
            return
        managed = Managed(self.box.ctx, str(self.box.venv))
        for name, entry in managed.ledger.files.items():
            assert sha256(self.box.read(name)) == entry["baseline"]["sha"] and entry["patches"] == []

    @rule(name=st.sampled_from(["fork", "mine"]))
    def adopt(self, name: str) -> None:
        if self.attempt("adopt", name=name) is not None:
            self.foreign = {}  # what was foreign is now somebody's baseline, kept in the store

    @rule(file=FILE)
    def edit(self, file: str) -> None:
        self.edits += 1
        content = self.box.read(file) + f"# by hand {self.edits}\n".encode()
        self.box.put(file, content)
        self.foreign[file] = content

    @rule(file=FILE)
    def put_wheel_back_by_hand(self, file: str) -> None:
        self.box.put(file, self.wheel()[file])
        self.foreign.pop(file, None)

    @rule()
    def upgrade(self) -> None:
        self.version = "0.5.13" if self.version != "0.5.13" else "0.5.12.post1"
        venvs.install(self.box.venv, self.wheel(), self.version)
        self.foreign = {}

    @rule(name=st.sampled_from(sorted(PATCHES)), die_at=st.integers(1, 90), completes=st.booleans())
    def killed_while_enabling(self, name: str, die_at: int, completes: bool) -> None:
        """The executor dies at a disk access; the next command undoes or completes the set."""
        plan = self.planned("toggle", enable=[PATCHES[name]])
        if plan is None:
            return
        before, after = self.snapshot(), {change.path: change.content for change in plan.changes}
        if os.fork() == 0:
            die(die_at, lambda: carry_out(self.box, plan))
        os.wait()
        files = FileSet.load(self.box.ctx.state, "txn")
        if files is not None and completes and files.phase == "json":
            files.swap()
        if files is not None and (files.phase == "done" or (completes and files.phase == "json")):
            files.finish()
        elif files is not None:
            files.undo()
        now = self.snapshot()
        changed = {path for path in now if now[path] != before[path]}
        assert changed in (set(), {path for path in after if path in now and after[path] != before[path]})

    def attempt(self, op: str, **args: Any) -> Plan | None:
        plan = self.planned(op, **args)
        if plan is None:
            return None
        overwritten = {
            c.path: n for n in (A, B) for c in plan.changes if c.path == str((self.box.site / n).resolve())
        }
        for name in overwritten.values():
            if name in self.foreign:
                assert args.get("force"), f"{op} overwrites {name} without force"
        carry_out(self.box, plan)
        for name in overwritten.values():
            content = self.foreign.pop(name, None)
            assert content is None or objects.get(self.box.ctx, sha256(content)) == content
        assert self.box.plan(op, **self.with_who(op, args)).summary == [] or op == "adopt"
        return plan

    def planned(self, op: str, **args: Any) -> Plan | None:
        """The plan, or None when it is refused; a refusal names a file or says why, and has a next command."""
        try:
            return self.box.plan(op, **self.with_who(op, args))
        except AgentError as refused:
            assert refused.hint
            assert not isinstance(refused, Drift) or A in refused.message or B in refused.message
            return None

    @staticmethod
    def with_who(op: str, args: dict[str, Any]) -> dict[str, Any]:
        return {**args, "who": "ann"} if op == "adopt" else args

    def wheel(self) -> dict[str, bytes]:
        return NEXT if self.version == "0.5.13" else WHEEL

    def snapshot(self) -> dict[str, bytes]:
        return {str((self.box.site / name).resolve()): self.box.read(name) for name in (A, B)}

    @invariant()
    def foreign_work_is_never_lost(self) -> None:
        for name, content in getattr(self, "foreign", {}).items():
            assert self.box.read(name) == content

    @invariant()
    def every_file_is_what_the_ledger_says_or_is_called_otherwise(self) -> None:
        if not hasattr(self, "box"):
            return
        managed = Managed(self.box.ctx, str(self.box.venv))
        for name, entry in managed.ledger.files.items():
            state = managed.state(name)
            if state in (ledger.OURS, ledger.BASELINE):
                assert managed.found(name) in (entry["sha"], entry["baseline"]["sha"])
            if name in self.foreign:
                assert state == ledger.FOREIGN

    @invariant()
    def nothing_lies_about(self) -> None:
        if hasattr(self, "root"):
            assert not list(self.root.rglob(".ddtool-txn*"))


def carry_out(box: Box, plan: Plan) -> None:
    files = FileSet.stage(box.ctx.state, "txn", plan.changes)
    files.swap()
    files.finish()


def die(at: int, work: Any) -> None:
    left = at

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in DISK_EVENTS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    work()
    os._exit(0)


def compose_here(command: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
    """The script in this process: the same code, without 50 ms for a new interpreter at every step."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(input))
        patch.setattr(sys, "stdout", out)
        compose_script.main()
    return subprocess.CompletedProcess(command, 0, out.getvalue(), "")


def test_any_sequence_keeps_the_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose.subprocess, "run", compose_here)
    monkeypatch.setattr(
        os, "fsync", lambda fd: None
    )  # SIGKILL loses no page cache; half of the time goes here
    run_state_machine_as_test(
        Host,
        settings=settings(
            max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
