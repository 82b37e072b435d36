"""Plans of diagnostics, restore and adopt on a small installation; carried out as the executor does."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support import venvs

from ddtool.agent import baseline, diagnostics, ledger, objects, overview, proof
from ddtool.agent.compose import patch_sha
from ddtool.agent.diagnostics import plan
from ddtool.agent.disk import sha256
from ddtool.agent.errors import AgentError, Drift, UsageError
from ddtool.agent.files import FileSet
from ddtool.agent.managed import Plan
from ddtool.agent.registry import Context

A, B = "sglang/srt/a.py", "sglang/srt/b.py"
WHEEL = {
    A: b"def f(x):\n    y = x\n    return y\n",
    B: b"def g(x):\n    return x\n",
    "sglang/__init__.py": b"",
}
NEXT = {**WHEEL, A: b"def f(x):\n    y = x\n    z = y\n    return z\n"}
F_SHA = "b" * 64


def definition(
    name: str = "trace", files: tuple[str, ...] = (A,), code: str = "print('@DDTOOL_SHA@')"
) -> dict[str, Any]:
    from ddtool.agent.compose_script import find_function, function_sha256, read_source

    targets = []
    for file in files:
        function = "f" if file == A else "g"
        known = {}
        for release, tree in (("0.5.12.post1", WHEEL), ("0.5.13", NEXT)):
            node = find_function(read_source(tree[file], file).tree, function)
            assert node is not None
            known[release] = function_sha256(node)
        anchor = "y = x" if file == A else "return x"
        edits = [{"anchor": anchor, "place": "before", "code": code}]
        target = {
            "file": file,
            "function": function,
            "releases": list(known),
            "ast_sha256": known,
            "edits": edits,
        }
        targets.append({**target, "append": "_ddtool_trace = 1"})
    return {"name": name, "kind": "diagnostic", "expires": 14, "targets": targets}


TRACE, PROBE, PAIR = definition(), definition("probe", code="pass"), definition("pair", (A, B))


class Box:
    """A host: a venv, ddtool's state, and the executor's way of carrying out a plan."""

    def __init__(self, root: Path, venv: Path | None = None) -> None:
        self.venv = venv or venvs.make(root / "venv", WHEEL)
        self.site = venvs.site(self.venv)
        (root / "state").mkdir(0o700, exist_ok=True)  # a host may have several environments
        self.ctx = Context(state=root / "state", run=root / "run", units=root / "units")

    def read(self, name: str) -> bytes:
        return (self.site / name).read_bytes()

    def put(self, name: str, content: bytes) -> None:
        (self.site / name).write_bytes(content)

    def plan(self, op: str, **args: Any) -> Plan:
        request = {"op": op, "venv": str(self.venv), **args}
        if op == "toggle":
            request = {"enable": [], "disable": [], "who": "ann", "why": "to see", **request}
        return plan(self.ctx, request)

    def do(self, op: str, **args: Any) -> Plan:
        made = self.plan(op, **args)
        files = FileSet.stage(self.ctx.state, "txn", made.changes)
        files.swap()
        files.finish()
        return made

    def state(self, name: str = A) -> str:
        from ddtool.agent.managed import Managed

        return Managed(self.ctx, str(self.venv)).state(name)

    def overview(self) -> dict[str, Any]:
        return overview.overview(self.ctx, str(self.venv))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_enable_and_disable_on_wheel_bytes(box: Box) -> None:
    made = box.do("toggle", enable=[TRACE])
    assert box.read(A) == WHEEL[A].replace(
        b"    y = x", f"    print('{patch_sha(TRACE)}')\n    y = x".encode()
    ) + (b"\n\n_ddtool_trace = 1\n")
    assert made.summary == [
        {
            "file": A,
            "path": str((box.site / A).resolve()),
            "before": "pristine",
            "after": "ours",
            "sha256": sha256(box.read(A)),
            "baseline": "wheel:sglang-0.5.12.post1",
            "patches": ["trace"],
        }
    ]
    assert made.diffs[A].startswith(f"--- a/{A}\n+++ b/{A}\n")
    (row,) = box.overview()["patches"]
    assert (row["who"], row["why"], row["on_disk"], row["lost"], row["expired"]) == (
        "ann",
        "to see",
        True,
        False,
        False,
    )
    box.do("toggle", disable=["trace"])
    assert box.read(A) == WHEEL[A] and box.state() == "pristine"
    assert box.overview()["files"] == []


def test_enabling_twice_changes_nothing(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    again = box.plan("toggle", enable=[TRACE], who="bob")
    assert (again.changes, again.summary) == ([], [])
    assert box.plan("toggle", disable=["probe"]).changes == []


def test_a_changed_definition_replaces_the_old_one(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    box.do("toggle", enable=[definition(code="print('two')")])
    assert b"two" in box.read(A) and patch_sha(TRACE).encode() not in box.read(A)


def test_patches_compose_in_any_order_and_leave_one_by_one(box: Box, tmp_path: Path) -> None:
    other = Box(tmp_path / "other")
    for name in ("trace", "probe", "pair"):
        box.do("toggle", enable=[{"trace": TRACE, "probe": PROBE, "pair": PAIR}[name]])
    other.do("toggle", enable=[PAIR, TRACE, PROBE])
    assert (box.read(A), box.read(B)) == (other.read(A), other.read(B))
    box.do("toggle", disable=["pair", "trace"])
    other.do("restore")
    other.do("toggle", enable=[PROBE])
    assert box.read(A) == other.read(A) and box.read(B) == WHEEL[B]


def test_planning_writes_nothing(box: Box, tmp_path: Path) -> None:
    def tree() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))

    before = tree()
    request = {"op": "toggle", "venv": str(box.venv), "enable": [PAIR], "disable": [], "who": "ann"}
    shown = diagnostics.preview(box.ctx, request)
    baseline.listing(box.ctx, str(box.venv))
    box.overview()
    assert tree() == before
    assert not shown["nothing_to_do"] and sorted(shown["diffs"]) == [A, B] and json.dumps(shown)


def test_the_digest_says_what_was_shown(box: Box) -> None:
    """Same bytes, another moment and person: same digest. The host moved on: another one, so the executor refuses."""
    first = box.plan("toggle", enable=[TRACE], who="ann").digest
    assert box.plan("toggle", enable=[TRACE], who="bob", why="else").digest == first
    assert box.plan("toggle", enable=[PROBE]).digest != first
    box.do("toggle", enable=[PROBE])
    assert box.plan("toggle", enable=[TRACE]).digest != first


def test_foreign_files_are_left_alone(box: Box) -> None:
    box.put(A, WHEEL[A] + b"# mine\n")
    assert box.state() == "foreign"
    with pytest.raises(Drift, match=A) as refused:
        box.plan("toggle", enable=[TRACE])
    assert "baseline adopt" in (refused.value.hint or "")
    with pytest.raises(Drift, match="no clean version is known"):
        box.plan("toggle", enable=[TRACE], force=True)


def test_an_edit_over_our_patch_is_foreign_and_kept_when_forced(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    edited = box.read(A) + b"# mine\n"
    box.put(A, edited)
    assert box.state() == "foreign" and not box.overview()["patches"][0]["on_disk"]
    for op, args in (("toggle", {"disable": ["trace"]}), ("toggle", {"enable": [PROBE]}), ("restore", {})):
        with pytest.raises(Drift, match=A):
            box.plan(op, **args)
    with pytest.raises(Drift, match="carry a diagnostic"):
        box.plan("adopt", name="mine", who="ann")
    made = box.do("restore", force=True)
    assert box.read(A) == WHEEL[A]
    assert objects.get(box.ctx, sha256(edited)) == edited and any("is kept as" in note for note in made.notes)


def test_restored_by_hand_is_known_bytes(box: Box) -> None:
    """`cp a.py.bak a.py` over our patch: putting the patch back destroys nobody's work."""
    box.do("toggle", enable=[TRACE])
    box.put(A, WHEEL[A])
    assert box.state() == "baseline" and not box.overview()["patches"][0]["on_disk"]
    box.do("toggle", enable=[PROBE])
    assert patch_sha(TRACE).encode() in box.read(A)


def test_a_missing_file_is_restored(box: Box) -> None:
    box.do("toggle", enable=[PAIR])
    (box.site / A).unlink()
    assert box.state() == "missing"
    with pytest.raises(Drift, match="missing"):
        box.plan("toggle", enable=[TRACE])
    box.do("restore")
    assert box.read(A) == WHEEL[A] and box.read(B) == WHEEL[B]


def test_an_upgrade_under_a_patch_is_reported_and_never_undone(box: Box) -> None:
    box.do("toggle", enable=[PAIR])
    venvs.install(box.venv, NEXT, "0.5.13")
    assert box.state() == "lost-by-upgrade" and box.overview()["patches"][0]["lost"]
    made = box.do("restore")
    assert box.read(A) == NEXT[A] and any("lost by upgrade" in note for note in made.notes)
    (entry, _) = box_ledger(box)["retired"]
    assert entry["baseline"]["sha"] == sha256(WHEEL[A]) and objects.has(box.ctx, sha256(WHEEL[A]))
    box.do("toggle", enable=[TRACE])
    assert box.state() == "ours" and b"z = y" in box.read(A)


def test_an_upgrade_that_broke_off_is_foreign_even_when_forced(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    for info in box.site.glob("*.dist-info"):
        (info / "RECORD").unlink()
        info.rmdir()
    venvs.write_record(box.venv, NEXT, "0.5.13")
    assert box.state() == "foreign"
    ours = box.read(A)
    for op, args in (("restore", {}), ("toggle", {"disable": ["trace"]})):
        for force in (False, True):
            with pytest.raises(Drift):
                box.plan(op, force=force, **args)
    assert box.read(A) == ours
    box.do("restore", to="wheel", wheel_files=encoded({A: NEXT[A]}), force=True)
    assert box.read(A) == NEXT[A]


def test_a_patch_for_other_releases_says_so(box: Box) -> None:
    alien = {**TRACE, "targets": [{**TRACE["targets"][0], "file": "sglang/srt/gone.py", "releases": ["0.4"]}]}
    with pytest.raises(UsageError, match=r"does not fit sglang 0\.5\.12\.post1: it is for 0\.4"):
        box.plan("toggle", enable=[alien])


def test_adopt_and_everything_after(box: Box) -> None:
    fork = b"import os\n" + WHEEL[A]
    box.put(A, fork)
    box.put("sglang/srt/extra.py", b"DFLASH_DIAG = 1\nbreakpoint()\n")
    box.put("sglang/srt/a.py.bak", WHEEL[A])
    made = box.do("adopt", name="fork", who="ann")
    assert [item["file"] for item in made.summary] == [A, "sglang/srt/extra.py"]
    assert [note.rsplit(":", 2)[-2:] for note in made.notes] == [
        ["1", " DFLASH_DIAG = 1"],
        ["2", " breakpoint()"],
    ]
    assert box.state() == "baseline" and box.read(A) == fork
    box.do("toggle", enable=[TRACE])
    assert box.state() == "ours" and box.read(A).startswith(b"import os\n")
    box.do("toggle", disable=["trace"])
    assert box.read(A) == fork and box.state() == "baseline"
    box.do("toggle", enable=[TRACE])
    box.do("restore")
    assert box.read(A) == fork
    box.do("restore", to="wheel")  # its bytes come from the .bak
    assert (
        box.read(A) == WHEEL[A] and box.state() == "pristine" and box.read("sglang/srt/a.py.bak") == WHEEL[A]
    )
    with pytest.raises(UsageError, match="no baseline 'forc'"):
        box.plan("restore", to="forc")
    box.do("restore", to="fork")
    assert box.read(A) == fork and box.state() == "baseline"
    venvs.install(box.venv, NEXT, "0.5.13")
    with pytest.raises(UsageError, match=r"the baseline fork is of sglang 0\.5\.12\.post1"):
        box.plan("restore", to="fork")


def test_the_wheel_may_come_from_the_operator(box: Box) -> None:
    box.put(A, b"import os\n" + WHEEL[A])
    box.do("adopt", name="fork", who="ann")
    with pytest.raises(Drift, match="not on this host") as refused:
        box.plan("restore", to="wheel")
    assert "--wheel sglang-0.5.12.post1" in (refused.value.hint or "")
    assert diagnostics.baseline_wanted(box.ctx, str(box.venv)) == [A]
    with pytest.raises(Drift):
        box.plan("restore", to="wheel", wheel_files=encoded({A: b"not the wheel's"}))
    box.do("restore", to="wheel", wheel_files=encoded({A: WHEEL[A]}))
    assert box.read(A) == WHEEL[A]


def test_an_unmanaged_install_can_be_adopted_but_has_no_wheel(box: Box) -> None:
    (box.site / "sglang-0.5.12.post1.dist-info/RECORD").unlink()
    assert box.state() == "unmanaged"
    with pytest.raises(Drift, match=A):
        box.plan("toggle", enable=[TRACE])
    with pytest.raises(UsageError, match="name the files"):
        box.plan("adopt", name="mine", who="ann")
    box.do("adopt", name="mine", files=[A], who="ann")
    box.do("toggle", enable=[TRACE])
    with pytest.raises(UsageError, match="has no RECORD"):
        box.plan("restore", to="wheel")
    box.do("restore")
    assert box.read(A) == WHEEL[A] and box.state() == "baseline"


def test_show_says_how_it_differs_and_what_was_left_behind(box: Box) -> None:
    box.put(A, WHEEL[A].replace(b"    y = x\n", b"    y = x\n    print(y)\n    pdb.set_trace()\n"))
    (item,) = baseline.show(box.ctx, str(box.venv))["files"]
    assert item["diff"] is None and "--wheel FILE" in item["no_diff"]
    assert [marker["text"] for marker in item["markers"]] == ["pdb.set_trace()"]
    (item,) = baseline.show(box.ctx, str(box.venv), None, {A: WHEEL[A]})["files"]
    assert "+    print(y)" in item["diff"]
    assert [(marker["line"], marker["text"]) for marker in item["markers"]] == [
        (3, "print(y)"),
        (4, "pdb.set_trace()"),
    ]


@pytest.mark.parametrize("name", ["", "wheel", "baseline", "../x", "a b"])
def test_bad_names_are_refused(box: Box, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name"):
        box.plan("adopt", name=name, who="ann")


def test_nothing_to_adopt_and_missing_files_are_said(box: Box) -> None:
    with pytest.raises(UsageError, match="nothing to adopt"):
        box.plan("adopt", name="x", who="ann")
    with pytest.raises(UsageError, match="not there"):
        box.plan("adopt", name="x", files=["sglang/none.py"], who="ann")
    with pytest.raises(UsageError, match="not a file of the package"):
        box.plan("adopt", name="x", files=["/etc/passwd"], who="ann")


def test_damaged_objects_are_never_written(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    objects.path(box.ctx, sha256(WHEEL[A])).write_bytes(b"rotten")
    with pytest.raises(AgentError, match="is damaged"):
        box.plan("restore")


def test_everything_ddtool_keeps_is_private(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    kept = [path for path in box.ctx.state.rglob("*") if path.is_file()]
    assert len(kept) == 3 and {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_venvs_that_share_inodes_are_not_touched(box: Box, tmp_path: Path) -> None:
    sibling = tmp_path / "sibling.py"
    os.link(box.site / A, sibling)
    box.do("toggle", enable=[TRACE])
    box.do("restore")
    assert sibling.read_bytes() == WHEEL[A]


def test_an_expired_diagnostic_is_said(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.do("toggle", enable=[TRACE])
    assert box.overview()["patches"][0]["expires"] == ledger.day(14)
    future = time.time() + 15 * 86400
    monkeypatch.setattr(time, "time", lambda: future)
    assert box.overview()["patches"][0]["expired"]


def test_loaded_by_which_ranks(box: Box) -> None:
    box.do("toggle", enable=[TRACE])
    folder = box.ctx.run / "unit"
    folder.mkdir(parents=True)
    patches = [{"name": "trace", "sha": patch_sha(TRACE), "file": A}]
    for pid, start, loaded in (
        (10, 100, [{**patches[0], "reached": True}, {**patches[0], "file": B, "reached": False}]),
        (11, 999, patches),
        (12, 120, [{**patches[0], "sha": "old"}]),
    ):
        (folder / f"{pid}-{start}.json").write_text(
            json.dumps({"patches": loaded, "pid": pid, "start": start})
        )
    (folder / "13-130.json").write_text("{broken")
    processes = [
        (9, 90, "python -m sglang.launch_server"),
        (10, 100, "sglang::scheduler_TP0"),
        (11, 110, "sglang::scheduler_TP1"),  # pid used again: the proof is of another process
        (12, 120, "sglang::scheduler_TP2"),
        (13, 130, "sglang::scheduler_DP0_TP3"),
        (14, 140, "sglang::detokenizer"),
    ]
    state = overview.state_of(box.ctx, str(box.venv), "unit", processes)
    assert state["patches"][0]["loaded"] == [0] and state["restart_needed"]
    assert state["patches"][0]["reached"] == [0]
    assert [(row["rank"], row["missing"], row["stale"]) for row in state["ranks"]] == [
        (0, [], []),
        (1, ["trace"], []),
        (2, ["trace"], ["trace"]),
        (3, ["trace"], []),
    ]
    only = overview.state_of(box.ctx, str(box.venv), "unit", processes[:2])
    assert not only["restart_needed"]
    box.do("restore")
    after = overview.state_of(box.ctx, str(box.venv), "unit", processes[:2])
    assert after["restart_needed"] and after["ranks"][0]["stale"] == ["trace"]


def test_units_that_run_from_an_installation_are_found(tmp_path: Path) -> None:
    for pid, maps, group in (
        ("1", "/usr/lib/libc.so", "0::/init.scope"),
        ("7", "7f00-7f01 r-xp 0 08:01 9 /opt/venv/site/torch/_C.so", "0::/system.slice/sglang-a.service"),
        (
            "8",
            "7f00-7f01 r-xp 0 08:01 9 /opt/venv/site/torch/_C.so",
            "1:name=systemd:/user.slice/session-1.scope",
        ),
        ("9", "7f00-7f01 r-xp 0 08:01 9 /opt/venv/site2/torch/_C.so", "0::/system.slice/other.service"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "maps").write_text(maps)
        (tmp_path / pid / "cgroup").write_text(group)
    (tmp_path / "10").mkdir()
    (tmp_path / "10/maps").write_text("/opt/venv/site/numpy/x.so")
    (tmp_path / "10/cgroup").write_text("0::/user.slice/user@7.service/app.slice/mine.service\n")
    (tmp_path / "11").mkdir()
    (tmp_path / "11/maps").write_text("/usr/lib/libc.so")  # pure Python so far: nothing native is mapped
    (tmp_path / "11/cmdline").write_text("/opt/venv/bin/python\0-m\0sglang.launch_server\0")
    (tmp_path / "11/cgroup").write_text("0::/system.slice/early.service\n")
    units = tmp_path / "units"
    units.mkdir()
    (units / "stopped.service").write_text(
        "[Service]\nExecStart=/opt/venv/bin/python -m sglang.launch_server\n"
    )
    (units / "another.service").write_text(
        "[Service]\n# not /opt/venv/bin/\nExecStart=/opt/venv2/bin/python\n"
    )
    expected = {"mine": [10], "early": [11], "sglang-a": [7], "pid 8": [8], "stopped": []}
    assert proof.units_using(Path("/opt/venv/site"), "/opt/venv", units, tmp_path) == expected


def test_a_host_without_sglang_has_no_diagnostics(tmp_path: Path) -> None:
    about = overview.overview(Context(state=tmp_path), str(tmp_path / "none"))
    assert about["patches"] == [] and "has no site-packages" in about["unmanaged"]


def encoded(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def box_ledger(box: Box) -> dict[str, Any]:
    (path,) = (box.ctx.state / "ledger").iterdir()
    data: dict[str, Any] = json.loads(path.read_text())
    return data
