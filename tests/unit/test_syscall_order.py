"""Power loss, by the order of system calls: every kind of transaction flushes what its next act relies on.

strace shows what the executor asks of the kernel; tests/support/syscalls.py says what a power cut might take back.
tests/host/test_power_cut.py cuts the power of a real kernel with a real disk image.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support import plain_host
from support.plain_host import PlainHost
from support.syscalls import Call, Checker, trace

BEFORE = {
    "deploy": [],
    "deploy again": ["deploy"],
    "enable": ["deploy"],
    "adopt": ["deploy"],
    "temporary": ["deploy"],
    "disable": ["deploy", "enable"],
    "restore": ["deploy", "enable"],
    "remove": ["deploy", "enable"],
    "failing": ["deploy"],
}


@pytest.fixture(autouse=True)
def strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing")
        pytest.skip("strace is missing")


def in_a_child(host: PlainHost, document: dict[str, object]) -> None:
    """Run a transaction; what it patches in this process goes with the child."""
    child = os.fork()
    if child == 0:
        plain_host.without_systemd()
        os._exit(host.run(document))
    assert os.waitpid(child, 0)[1] == 0


def traced(host: PlainHost, kind: str, number: int, out: Path) -> list[Call]:
    document = host.plan("enable" if kind == "failing" else kind.split()[0], number)
    if (
        kind == "failing"
    ):  # the second step finds another file than it was planned for, so the first is undone
        document["steps"].append(
            {
                "step": "files",
                "title": "in vain",
                "files": [{"path": str(host.unit_file), "content": "", "mode": 0o644, "expect": "0" * 64}],
            }
        )
    host.write(document)
    return trace(host.root, document["id"], out)


@pytest.mark.parametrize("kind", BEFORE)
def test_what_an_act_relies_on_is_flushed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = PlainHost(tmp_path / "host").make()
    monkeypatch.setattr(plain_host.compose, "subprocess", plain_host.IN_PROCESS)
    for number, before in enumerate(BEFORE[kind], 1):
        in_a_child(host, host.plan(before, number))
    managed = {path for path in host.files() if path != "ledger"}
    calls = traced(host, kind, 9, tmp_path / "strace.out")
    managed |= {str(path) for path in host.ctx.state.glob("ledger/*.json")}
    swaps = [call for call in calls if call.name == "rename" and call.target in managed]
    assert len(swaps) >= (1 if kind in ("remove", "adopt") else 2), calls
    assert Checker(managed).check(calls) == []


def test_the_rules_notice() -> None:
    """Without this a trace that no rule ever matches would pass."""
    root = "/r/state/txn/1"
    write, flush = Call("write", f"{root}/.ddtool-a"), Call("fsync", f"{root}/.ddtool-a")
    move = Call("rename", f"{root}/.ddtool-a", "/r/a")
    shut = [Call("open", "/r/state/txn.open", flags="O_EXCL"), Call("fsync", "/r/state")]
    line = Call("write", f"{root}/journal.jsonl")
    assert Checker({"/r/a"}).check([*shut, write, flush, move, Call("fsync", "/r"), line]) == []
    assert "its own bytes" in str(Checker({"/r/a"}).check([*shut, write, move, Call("fsync", "/r")]))
    assert "a new /r/a" in str(Checker({"/r/a"}).check([shut[0], write, flush, move, Call("fsync", "/r")]))
    assert "a line of the journal" in str(Checker({"/r/a"}).check([*shut, write, flush, move, line]))
    assert "in place" in str(Checker({"/r/a"}).check([Call("open", "/r/a")]))
    assert "letting units start" in str(
        Checker({"/r/a"}).check([*shut, write, flush, move, Call("unlink", "/r/state/txn.open")])
    )
