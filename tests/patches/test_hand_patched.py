"""The first user's host: a fork patched by hand in site-packages, `.bak` files, a debug print left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import venvs

from ddtool.agent import baseline
from ddtool.agent.diagnostics import plan
from ddtool.agent.errors import Drift
from ddtool.agent.files import FileSet
from ddtool.agent.managed import Plan
from ddtool.agent.registry import Context
from ddtool.diagnostics import definition

pytestmark = pytest.mark.patches
FILE = "sglang/srt/model_executor/cuda_graph_runner.py"
PATCH = definition.load("graph-copy").to_json()
WIDTH = b"""            if self.model_runner.is_draft_worker:
                # DDTREE: the drafter's graph is captured for its block
                self.ddtree_block = 8
"""
PRINT = b"""
    for dst, src in zip(dsts, srcs):
        print("DFLASH_DIAG", src is None)
"""


@pytest.fixture(params=["0.5.11", "0.5.12.post1"])
def fork(request: pytest.FixtureRequest, venv: Callable[[str], Path]) -> Path:
    """The wheel with lines added far from the function that graph-copy edits, a backup, and a module of its own."""
    made = venv(request.param)
    path = venvs.site(made) / FILE
    wheel = path.read_bytes()
    path.with_name(path.name + ".bak").write_bytes(wheel)
    anchor = b"            if self.model_runner.is_draft_worker:\n"
    assert anchor in wheel
    put(path, wheel.replace(anchor, WIDTH, 1))
    put(venvs.site(made) / "sglang/srt/speculative/ddtree_worker.py", b"BUDGET = 32\n")
    return made


def put(path: Path, content: bytes) -> None:
    """As an editor does: the tree shares inodes with other environments."""
    temp = path.with_name(path.name + ".tmp")
    temp.write_bytes(content)
    temp.replace(path)


def carry_out(ctx: Context, made: Plan) -> None:
    files = FileSet.stage(ctx.state, "test", made.changes)
    files.swap()
    files.finish()


def toggle(fork: Path, **more: object) -> dict[str, object]:
    return {"op": "toggle", "venv": str(fork), "enable": [PATCH], "disable": [], "who": "me", **more}


def test_adopt_enable_restore_gives_the_adopted_bytes_back(ctx: Context, fork: Path) -> None:
    path = venvs.site(fork) / FILE
    adopted = path.read_bytes()

    with pytest.raises(Drift, match="cuda_graph_runner") as refused:
        plan(ctx, toggle(fork))
    assert "ddtool baseline adopt" in (refused.value.hint or "")
    assert path.read_bytes() == adopted

    carry_out(ctx, plan(ctx, {"op": "adopt", "venv": str(fork), "name": "fork", "who": "me"}))
    listed = baseline.listing(ctx, str(fork))
    assert sorted(listed["baselines"][0]["files"]) == [FILE, "sglang/srt/speculative/ddtree_worker.py"]
    assert [(item["of"], item["is_wheel"]) for item in listed["backups"]] == [(FILE, True)]

    carry_out(ctx, plan(ctx, toggle(fork)))
    assert (
        b"_ddtool_graph_copy(dsts, srcs)" in path.read_bytes()
        and b"self.ddtree_block = 8" in path.read_bytes()
    )

    carry_out(ctx, plan(ctx, {"op": "restore", "venv": str(fork)}))
    assert path.read_bytes() == adopted
    assert path.with_name(path.name + ".bak").exists()


def test_the_wheel_comes_from_the_backup_and_the_fork_can_return(ctx: Context, fork: Path) -> None:
    path = venvs.site(fork) / FILE
    wheel, adopted = path.with_name(path.name + ".bak").read_bytes(), path.read_bytes()
    carry_out(ctx, plan(ctx, {"op": "adopt", "venv": str(fork), "name": "fork", "who": "me"}))
    carry_out(ctx, plan(ctx, toggle(fork)))
    made = plan(ctx, {"op": "restore", "venv": str(fork), "to": "wheel"})
    carry_out(ctx, made)
    assert path.read_bytes() == wheel
    assert any("ddtree_worker.py: not part of the wheel" in note for note in made.notes)
    carry_out(ctx, plan(ctx, {"op": "restore", "venv": str(fork), "to": "fork"}))
    assert path.read_bytes() == adopted


def test_a_debug_print_in_the_function_needs_consent(ctx: Context, fork: Path) -> None:
    path = venvs.site(fork) / FILE
    marked = path.read_bytes().replace(b"\n    for dst, src in zip(dsts, srcs):\n", PRINT, 1)
    put(path, marked)
    adopt = plan(ctx, {"op": "adopt", "venv": str(fork), "name": "fork", "who": "me"})
    assert [note for note in adopt.notes if "DFLASH_DIAG" in note]
    carry_out(ctx, adopt)
    shown = baseline.show(ctx, str(fork), "fork")["files"][0]
    assert [item["text"] for item in shown["markers"]] == ['print("DFLASH_DIAG", src is None)']
    assert '+        print("DFLASH_DIAG", src is None)' in shown["diff"]

    with pytest.raises(Drift, match="not checked on"):
        plan(ctx, toggle(fork))
    made = plan(ctx, toggle(fork, confirm_unknown=True))
    assert (
        made.unknown[0]["function"] == "_grouped_foreach_copy_" and "DFLASH_DIAG" in made.unknown[0]["source"]
    )
    carry_out(ctx, made)
    again = plan(ctx, toggle(fork))
    assert again.changes == [] and again.unknown == []
    carry_out(ctx, plan(ctx, {"op": "restore", "venv": str(fork)}))
    assert path.read_bytes() == marked
