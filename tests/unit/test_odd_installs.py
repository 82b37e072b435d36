"""Installations as they are found: each odd one has a defined outcome, see docs/installs.md.

The environments of an upgrade and of an editable install are real ones, made by venv and pip.
"""

from __future__ import annotations

import codecs
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import installers, venvs

from ddtool.agent import diagnostics, objects
from ddtool.agent.compose import patch_sha
from ddtool.agent.compose_script import find_function, function_sha256, read_source
from ddtool.agent.errors import AgentError, Drift, PreflightError, UsageError
from ddtool.agent.files import FileSet
from ddtool.agent.managed import Managed, Plan

from . import test_diag as diag
from .test_diag import A, B

SOURCE = b"def f(x):\n    y = x\n    return y\n"
OLD = {A: SOURCE, B: b"B = 1\n", "sglang/__init__.py": b""}
NEW = {**OLD, A: SOURCE + b"\n\nADDED = 1\n"}
KNOWN = function_sha256(find_function(read_source(SOURCE, A).tree, "f"))  # type: ignore[arg-type]


def patch(name: str = "trace", code: str = "print('@DDTOOL_PATCH@')") -> dict[str, Any]:
    target = {"file": A, "function": "f", "releases": ["0.5.12.post1"], "ast_sha256": {"0.5.12.post1": KNOWN}}
    edits = [{"anchor": "y = x", "place": "before", "code": code}]
    return {"name": name, "kind": "diagnostic", "expires": 14, "targets": [{**target, "edits": edits}]}


class Box(diag.Box):
    """A host with a venv that is not as an installer leaves it."""

    @property
    def file(self) -> Path:
        return Managed(self.ctx, str(self.venv)).install.path(A)

    def enable(self, *patches: dict[str, Any], **args: Any) -> Plan:
        return self.do("toggle", enable=list(patches or [patch()]), **args)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, venvs.make(tmp_path / "venv", OLD))


@pytest.fixture(scope="module")
def real_wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return {
        version: installers.build(folder, files, version) for version, files in (("1.0", OLD), ("2.0", NEW))
    }


@pytest.fixture
def real(tmp_path: Path, real_wheels: dict[str, Path]) -> Box:
    """A real environment into which pip has installed version 1.0."""
    venv = installers.environment(tmp_path / "real")
    installers.pip_install(venv, str(real_wheels["1.0"]))
    return Box(tmp_path, venv)


def test_upgrade_under_a_patch(real: Box, real_wheels: dict[str, Path]) -> None:
    """The patch is reported lost, what is new stays, and the patch goes on again by hand."""
    real.enable()
    assert real.state() == "ours"
    installers.pip_install(real.venv, "--upgrade", str(real_wheels["2.0"]))
    assert real.state() == "lost-by-upgrade" and real.file.read_bytes() == NEW[A]
    (row,) = real.overview()["patches"]
    assert row["lost"] and not row["on_disk"]
    made = real.do("restore")
    assert real.file.read_bytes() == NEW[A] and any("lost by upgrade" in note for note in made.notes)
    real.enable()
    assert real.state() == "ours" and b"ADDED = 1" in real.file.read_bytes()


def test_the_same_version_again_takes_the_patch_away(real: Box, real_wheels: dict[str, Path]) -> None:
    """`pip install --force-reinstall` puts the clean bytes back: known bytes, so the patch may simply return."""
    real.enable()
    installers.pip_install(real.venv, "--force-reinstall", str(real_wheels["1.0"]))
    assert real.state() == "baseline" and not real.overview()["patches"][0]["on_disk"]
    real.enable()
    assert real.state() == "ours"


def test_half_upgrade_with_two_versions_listed(real: Box) -> None:
    """The installer was killed between the two: nothing is touched, by force neither, until it has been finished."""
    real.enable()
    ours = real.file.read_bytes()
    venvs.write_record(real.venv, NEW, "2.0")
    for op, args in (("restore", {}), ("toggle", {"disable": ["trace"]}), ("toggle", {"enable": [patch()]})):
        for force in (False, True):
            with pytest.raises(Drift):
                real.plan(op, force=force, **args)
    with pytest.raises(Drift, match=r"lists several versions .* an install broke off") as refused:
        real.plan("restore", force=True)
    assert "finish that install" in (refused.value.hint or "")
    assert real.file.read_bytes() == ours


def test_half_upgrade_with_old_files_is_finished_by_the_installer(
    real: Box, real_wheels: dict[str, Path]
) -> None:
    """RECORD is of the new version, a patched file still of the old: refused; after the reinstall it is an upgrade."""
    real.enable()
    ours = real.file.read_bytes()
    installers.pip_install(real.venv, "--upgrade", str(real_wheels["2.0"]))
    real.file.write_bytes(ours)
    assert real.state() == "foreign"
    with pytest.raises(Drift, match=r"upgraded to 2\.0 around them"):
        real.plan("restore", force=True)
    installers.pip_install(real.venv, "--force-reinstall", str(real_wheels["2.0"]))
    assert real.state() == "lost-by-upgrade"
    real.do("restore")
    assert real.file.read_bytes() == NEW[A]


def test_editable_install(tmp_path: Path) -> None:
    """Nothing says what is clean, so the file is adopted by name; then the checkout gets the patch, and loses it."""
    source = installers.project(tmp_path / "fork", OLD, "1.0")
    venv = installers.environment(tmp_path / "venv")
    installers.pip_install(venv, "--editable", str(source))
    box = Box(tmp_path, venv)
    assert box.file == source / "python" / A and box.state() == "unmanaged"
    with pytest.raises(Drift, match=A) as refused:
        box.plan("toggle", enable=[patch()])
    assert "baseline adopt" in (refused.value.hint or "")
    with pytest.raises(UsageError, match=r"editable install of .* name the files"):
        box.plan("adopt", name="fork", who="ann")
    box.do("adopt", name="fork", files=[A], who="ann")
    box.enable()
    assert b"print('trace')" in box.file.read_bytes()
    done = subprocess.run(
        [str(venv / "bin/python"), "-c", "import sglang.srt.a as a; a.f(1)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "trace\n"
    box.do("restore")
    assert box.file.read_bytes() == SOURCE
    with pytest.raises(UsageError, match="cannot restore to the wheel: editable install"):
        box.plan("restore", to="wheel")


def test_missing_record(box: Box) -> None:
    """Before a patch: adopt first. Lost under a patch, at the same version: the recorded baseline is still right."""
    record = next(venvs.site(box.venv).glob("sglang-*.dist-info")) / "RECORD"
    kept = record.read_bytes()
    record.unlink()
    assert box.state() == "unmanaged"
    with pytest.raises(Drift, match=A):
        box.plan("toggle", enable=[patch()])
    record.write_bytes(kept)
    box.enable()
    record.unlink()
    assert box.state() == "ours"
    box.do("restore")
    assert box.file.read_bytes() == SOURCE and box.state() == "unmanaged"


def test_hard_links_to_a_shared_cache(tmp_path: Path, box: Box) -> None:
    """uv's default. No write goes through: the cache and the other environment keep bytes and times."""
    other = venvs.clone(box.venv, tmp_path / "other")
    cached = tmp_path / "cached.py"
    os.link(box.file, cached)
    assert cached.stat().st_nlink == 3
    before = (cached.read_bytes(), cached.stat().st_mtime_ns, cached.stat().st_mode)
    box.enable()
    box.do("restore")
    sibling = venvs.site(other) / A
    assert (cached.read_bytes(), cached.stat().st_mtime_ns, cached.stat().st_mode) == before
    assert sibling.read_bytes() == SOURCE and sibling.stat().st_ino == cached.stat().st_ino
    assert box.file.stat().st_nlink == 1


@pytest.mark.parametrize("linked", ["file", "package"])
def test_links_out_of_the_installation(tmp_path: Path, box: Box, linked: str) -> None:
    """uv's symlink mode, or a package folder that is a link: whoever shares the target would be patched too."""
    file, shared = box.file, tmp_path / "shared"
    moved = file if linked == "file" else file.parents[1]
    shutil.move(moved, shared)
    moved.symlink_to(shared)
    with pytest.raises(PreflightError, match=r"is a link to .*shared") as refused:
        box.plan("toggle", enable=[patch()])
    assert "--link-mode=copy" in (refused.value.hint or "")
    assert file.read_bytes() == SOURCE


def test_symlinked_site_packages(tmp_path: Path, box: Box) -> None:
    """The real folder is what counts: two environments that share it share one ledger."""
    site, elsewhere = venvs.site(box.venv), tmp_path / "elsewhere"
    shutil.move(site, elsewhere)
    site.symlink_to(elsewhere)
    second = Box(tmp_path, tmp_path / "second")
    venvs.site(second.venv).parent.mkdir(parents=True)
    venvs.site(second.venv).symlink_to(elsewhere)
    (second.venv / "bin").mkdir()
    (second.venv / "bin/python").symlink_to(sys.executable)
    box.enable()
    assert second.state() == "ours" and (elsewhere / A).read_bytes() != SOURCE
    second.do("restore")
    assert box.state() == "pristine" and (elsewhere / A).read_bytes() == SOURCE


@pytest.fixture
def read_only(box: Box) -> Iterator[Callable[[], None]]:
    """Makes the environment read-only, for root by a read-only mount that goes again with the test."""
    site = str(venvs.site(box.venv))
    made: list[str] = []

    def freeze() -> None:
        if os.geteuid() != 0:
            for folder, _, _ in os.walk(site):
                os.chmod(folder, 0o555)
                made.append(folder)
            return
        if subprocess.run(["mount", "--bind", site, site], check=False).returncode:
            pytest.skip("this root may not mount")
        made.append(site)
        subprocess.run(["mount", "-o", "remount,bind,ro", site], check=True)

    yield freeze
    if os.geteuid() == 0:
        for mounted in made:
            subprocess.run(["umount", mounted], check=True)
    for folder in made:
        os.chmod(folder, 0o755)


def test_read_only_venv(box: Box, read_only: Callable[[], None]) -> None:
    """Refused by the plan: an executor that found out later would have stopped the service for nothing."""
    read_only()
    with pytest.raises(PreflightError, match=r"cannot write .*read-only"):
        box.plan("toggle", enable=[patch()])
    assert box.state() == "pristine" and [path.name for path in box.ctx.state.rglob("*")] == []


@pytest.mark.parametrize(
    "content",
    [
        SOURCE.replace(b"\n", b"\r\n"),
        codecs.BOM_UTF8 + SOURCE,
        codecs.BOM_UTF8 + SOURCE.replace(b"\n", b"\r\n").rstrip(),
        "# -*- coding: latin-1 -*-\nNAME = 'é'\n".encode("latin-1") + SOURCE,
        "# vim: set fileencoding=shift_jis :\nNAME = 'テ'\n".encode("shift_jis") + SOURCE,
        b"# page\x0c\n" + SOURCE,
    ],
    ids=["crlf", "bom", "bom-crlf-no-newline", "latin-1", "shift-jis", "form-feed"],
)
def test_newlines_and_encodings(tmp_path: Path, content: bytes) -> None:
    """All bytes but the inserted line stay; the result is what Python reads; restore gives the bytes back."""
    box = Box(tmp_path, venvs.make(tmp_path / "venv", {**OLD, A: content}))
    box.enable()
    newline = b"\r\n" if b"\r\n" in content else b"\n"
    assert box.file.read_bytes() == content.replace(
        b"    y = x", b"    print('trace')" + newline + b"    y = x"
    )
    run = [str(box.venv / "bin/python"), "-c", "import runpy, sys; runpy.run_path(sys.argv[1])['f'](1)"]
    done = subprocess.run([*run, str(box.file)], capture_output=True, text=True, check=True)
    assert done.stdout == "trace\n"
    box.do("restore")
    assert box.file.read_bytes() == content and box.state() == "pristine"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"# coding: klingon\n" + SOURCE, "unknown encoding"),
        (b"NAME = '\xe9'\n" + SOURCE, "does not parse"),
        (SOURCE + b"    y = x\n", "matches 2 times, not once"),
        (SOURCE.replace(b"y = x", b"y = +x"), "matches 0 times, not once"),
        (SOURCE.replace(b"def f", b"def g"), "there is no such function"),
    ],
    ids=["encoding", "not-utf-8", "twice", "gone", "function-gone"],
)
def test_what_cannot_be_patched_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    box = Box(tmp_path, venvs.make(tmp_path / "venv", {**OLD, A: content}))
    with pytest.raises(UsageError, match=why):
        box.plan("toggle", enable=[patch()], confirm_unknown=True)
    assert box.file.read_bytes() == content


def test_an_unknown_function_shows_itself_the_edit_and_the_diff_and_needs_consent(tmp_path: Path) -> None:
    changed = SOURCE.replace(b"return y", b"return -y")
    box = Box(tmp_path, venvs.make(tmp_path / "venv", {**OLD, A: changed}))
    with pytest.raises(Drift, match=r"was not checked on: trace: f in sglang/srt/a\.py") as refused:
        box.plan("toggle", enable=[patch()])
    assert "--yes" in (refused.value.hint or "")
    request = {"op": "toggle", "venv": str(box.venv), "enable": [patch()], "disable": [], "who": "ann"}
    shown = diagnostics.preview(box.ctx, request)
    (unknown,) = shown["unknown"]
    assert "return -y" in unknown["source"]
    assert unknown["edits"] == [{"place": "before", "anchor": "y = x", "code": "print('trace')"}]
    assert "+    print('trace')" in shown["diffs"][A]
    box.enable(confirm_unknown=True)
    assert box.state() == "ours"


def test_a_file_changed_between_plan_and_work(box: Box) -> None:
    """Nothing is written, the other's edit stays, and the plan's temporary files are gone."""
    made = box.plan("toggle", enable=[patch()])
    box.file.write_bytes(SOURCE + b"# mine\n")
    with pytest.raises(Drift, match="changed by someone else"):
        FileSet.stage(box.ctx.state, "txn", made.changes)
    assert box.file.read_bytes() == SOURCE + b"# mine\n" and left_over(box) == []


def test_a_file_changed_between_staging_and_swap(box: Box) -> None:
    files = FileSet.stage(box.ctx.state, "txn", box.plan("toggle", enable=[patch()]).changes)
    box.file.write_bytes(SOURCE + b"# mine\n")
    with pytest.raises(Drift, match="changed by someone else"):
        files.swap()
    files.undo()
    assert box.file.read_bytes() == SOURCE + b"# mine\n" and left_over(box) == []


def left_over(box: Box) -> list[str]:
    return [path.name for path in box.venv.rglob(".ddtool-*")]


def test_a_patch_enabled_by_an_older_ddtool(box: Box) -> None:
    """Its own code stays until it is enabled again or taken out; both need nothing but its name."""
    old, new, other = patch(code="print('old')"), patch(code="print('new')"), patch("probe", "pass")
    box.enable(old)
    box.enable(other)
    assert b"print('old')" in box.file.read_bytes()
    box.enable(new)
    assert b"print('new')" in box.file.read_bytes() and b"print('old')" not in box.file.read_bytes()
    box.enable(old)
    box.do("toggle", disable=["trace", "probe"])
    assert box.state() == "pristine"


def test_a_patch_whose_code_the_host_has_lost(box: Box) -> None:
    """Another patch on the file is refused with what to do; either of the two helps, and restore always does."""
    old, other = patch(code="print('old')"), patch("probe", "pass")
    for way_out in ("enable", "disable", "restore"):
        box.enable(old)
        objects.path(box.ctx, patch_sha(old)).unlink()
        with pytest.raises(Drift, match="lost the code of an enabled patch: trace") as refused:
            box.plan("toggle", enable=[other])
        assert all(f"diag {verb} trace" in (refused.value.hint or "") for verb in ("enable", "disable"))
        assert box.overview()["patches"][0]["on_disk"]
        if way_out == "enable":
            box.enable(patch(code="print('new')"))
            box.enable(other)
        elif way_out == "disable":
            box.do("toggle", disable=["trace"])
            box.enable(other)
        box.do("restore")
        assert box.file.read_bytes() == SOURCE and box.state() == "pristine"


def test_a_ledger_of_another_format_is_left_alone(box: Box) -> None:
    box.enable()
    file, ours = box.file, box.file.read_bytes()
    (path,) = (box.ctx.state / "ledger").iterdir()
    path.write_text(path.read_text().replace("ddtool.ledger/1", "ddtool.ledger/0"))
    with pytest.raises(AgentError, match=r"is ddtool\.ledger/0, not ddtool\.ledger/1"):
        box.plan("restore", force=True)
    assert file.read_bytes() == ours
