"""The run folder belongs to the service, which may run as another user: nothing in it leads root elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddtool.agent import careful, evidence, proof, rounds, safeguard, unit
from ddtool.agent.registry import Context

SECRET = "root:$6$only-root-may-read-this"


@pytest.fixture
def shadow(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_text(json.dumps({"patches": [{"name": SECRET, "sha": ""}], "root": SECRET}))
    return path


def own_start() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def test_a_proof_that_is_a_link_shows_no_other_file(ctx: Context, shadow: Path) -> None:
    name = f"{os.getpid()}-{own_start()}"
    (ctx.run / "svc" / f"{name}.json").symlink_to(shadow)
    assert evidence.proofs(ctx, "svc") == []
    (row,) = proof.loaded(ctx.run / "svc", [(os.getpid(), own_start(), "sglang::scheduler_TP0")])
    assert row["patches"] is None


def test_stacks_that_are_a_link_do_not_get_into_the_evidence(ctx: Context, shadow: Path) -> None:
    (ctx.run / "svc" / "1-1.stacks").symlink_to(shadow)
    os.link(shadow, ctx.run / "svc" / "2-2.stacks")
    (ctx.run / "svc" / "3-3.stacks").write_text("Thread 0x1 (most recent call first)")
    folder = ctx.state / "evidence"
    folder.mkdir()
    evidence._save_proofs(ctx, "svc", folder)
    assert SECRET not in "".join(path.read_text() for path in folder.iterdir())
    assert "most recent call first" in (folder / "3-3.stacks").read_text()


def test_the_stacks_of_a_proof_lead_nowhere_else(
    ctx: Context, shadow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record names the file, and used to name any file."""
    record = {"pid": os.getpid(), "start": own_start(), "stacks": f"../../{shadow.name}"}
    (ctx.run / "svc" / f"{os.getpid()}-{own_start()}.json").write_text(json.dumps(record))
    me = unit.process(os.getpid())
    monkeypatch.setattr(unit, "processes", lambda name: [me])
    monkeypatch.setattr(evidence, "STACKS_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    assert SECRET not in "\n".join(evidence.dump_stacks(ctx, "svc", lambda event, **fields: None))


def test_a_proof_cannot_aim_a_signal_at_another_process(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGUSR2 ends whoever has no handler for it: sshd, a database, PID 1's children."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        start = unit.process(victim.pid)
        assert start is not None
        name = f"{victim.pid}-{start.start}"
        record = {"pid": victim.pid, "start": start.start, "stacks": f"{name}.stacks"}
        (ctx.run / "svc" / f"{name}.json").write_text(json.dumps(record))
        (ctx.run / "svc" / f"{name}.stacks").touch()
        monkeypatch.setattr(unit, "processes", lambda name: [])  # it is not the unit's
        monkeypatch.setattr(evidence, "STACKS_S", 0.2)
        evidence.dump_stacks(ctx, "svc", lambda event, **fields: None)
        time.sleep(0.2)
        assert victim.poll() is None
        victim.kill()


def test_a_proof_cannot_have_other_files_deleted(ctx: Context, tmp_path: Path) -> None:
    """The pid went into a glob pattern: `../../victim` there was a way out."""
    victim = tmp_path / "victim-1.conf"
    victim.touch()
    (ctx.run / "svc" / "9-9.json").write_text(json.dumps({"pid": "../../victim", "start": 1}))
    (ctx.run / "svc" / "8-8.json").write_text(json.dumps({"pid": "*", "start": "*"}))
    alive = ctx.run / "svc" / f"{os.getpid()}-{own_start()}.json"
    alive.write_text("{}")
    evidence.drop_dead_proofs(ctx, "svc")
    assert victim.exists() and alive.exists()
    assert [path.name for path in (ctx.run / "svc").iterdir()] == [alive.name]


@pytest.mark.parametrize(
    "text", ["[]", "7", "null", '{"start": 1}', '{"pid": null}', "[" * 90_000, '{"pid": ' + "9" * 9000 + "}"]
)
def test_a_proof_that_is_no_proof_costs_only_itself(ctx: Context, text: str) -> None:
    (ctx.run / "svc" / "1-1.json").write_text(text)
    (ctx.run / "svc" / "2-2.json").write_text('{"patches": []}')
    assert {"pid": 2, "start": 2, "patches": []} in evidence.proofs(ctx, "svc")
    evidence.drop_dead_proofs(ctx, "svc")


@pytest.mark.timeout(10)
def test_a_pipe_keeps_nobody_waiting(ctx: Context) -> None:
    os.mkfifo(ctx.run / "svc" / "1-1.json")
    os.mkfifo(ctx.run / "svc" / "1-1.stacks")
    assert evidence.proofs(ctx, "svc") == []
    folder = ctx.state / "evidence"
    folder.mkdir()
    evidence._save_proofs(ctx, "svc", folder)


def test_only_so_much_is_read(tmp_path: Path) -> None:
    path = tmp_path / "1-1.stacks"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert len(careful.read(path, 1000)) == 1000
    assert careful.read_record(path) is None


def test_a_trace_that_became_a_link_is_not_followed(ctx: Context, shadow: Path) -> None:
    with rounds.RoundTrace(ctx, "svc") as trace:
        (path,) = (ctx.run / "svc").iterdir()
        path.unlink()
        path.symlink_to(shadow)
        with pytest.raises(OSError, match="symbolic link"):
            trace.lines()


def test_the_mark_of_an_experiment_is_not_made_through_a_link(ctx: Context, tmp_path: Path) -> None:
    """`touch` made /etc/nologin where the link led."""
    nologin = tmp_path / "nologin"
    safeguard.running(ctx, "svc").symlink_to(nologin)
    safeguard.arm(ctx, "svc")
    assert not nologin.exists() and safeguard.running(ctx, "svc").is_file()
