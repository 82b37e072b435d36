"""The agent's zipapp with bytecode: the same program, started without compiling it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddtool.agent import releases, txn
from ddtool.agent.compiled import with_bytecode
from ddtool.agent.registry import Context
from ddtool.transport.bootstrap import agent_zipapp, digest


def test_the_sources_stay_and_each_has_its_bytecode() -> None:
    came, made = agent_zipapp(), with_bytecode(agent_zipapp())
    before, after = zipfile.ZipFile(io.BytesIO(came)), zipfile.ZipFile(io.BytesIO(made))
    assert all(after.read(name) == before.read(name) for name in before.namelist())
    assert set(after.namelist()) - set(before.namelist()) == {f"{name}c" for name in before.namelist()}


def test_python_takes_the_bytecode_and_another_python_the_source(tmp_path: Path) -> None:
    path = tmp_path / "agent.pyz"
    path.write_bytes(with_bytecode(agent_zipapp()))
    code = (
        "import sys, builtins; sys.path.insert(0, sys.argv[1]); real = builtins.compile\n"
        "import zipimport; zipimport.compile = lambda *a, **k: print('compiled') or real(*a, **k)\n"
        "from ddtool.agent import disk; print(disk.sha256(b''))"
    )

    def run() -> str:
        done = subprocess.run([sys.executable, "-I", "-c", code, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "compiled" not in run()
    other = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(other, "w") as made:
        for name in archive.namelist():
            data = archive.read(name)
            made.writestr(name, b"\0\0\r\n" + data[4:] if name.endswith(".pyc") else data)
    path.write_bytes(other.getvalue())
    assert "compiled" in run() and digest(b"") in run()


def test_it_is_installed_beside_the_agent_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = Context(state=tmp_path)
    running = tmp_path / "running.pyz"
    monkeypatch.setattr(sys, "argv", [str(running)])
    for number in range(5):
        running.write_bytes(agent_zipapp() if number == 4 else _another(number))
        path = txn.install_agent(ctx)
    kept = sorted(item.name for item in (tmp_path / "agent").iterdir())
    assert path.name == f"{digest(agent_zipapp())}.pyz" and len(kept) == 2 * txn.KEPT_AGENTS
    fast = path.with_name(f"{path.stem}.{sys.implementation.cache_tag}.pyz")
    assert fast.name in kept
    monkeypatch.setattr(sys, "argv", [str(fast)])
    assert releases.running_agent() == path
    assert txn.install_agent(ctx) == path


def _another(number: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__main__.py", f"print({number})")
    return buffer.getvalue()
