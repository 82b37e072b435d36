"""Every shipped patch on the real wheel of every release that it claims."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support import patch_probe, venvs

from ddtool.agent import compose_script
from ddtool.diagnostics import definition

pytestmark = pytest.mark.patches
PATCHES = {patch.name: patch for patch in definition.load_all()}
CLAIMS = [(patch.name, release) for patch in PATCHES.values() for release in patch.releases]
RELEASES = sorted({release for _, release in CLAIMS})
Venvs = Callable[[str], Path]


@cache
def patched(venv: Path, release: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """Every file of the release that these patches edit, composed by the venv's Python. All functions are known."""
    return patch_probe.patched_files(venv, release, [PATCHES[name] for name in names])


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_fits_compiles_and_knows_the_function(name: str, release: str, edited: Venvs) -> None:
    """The hash of each function is the recorded one; the anchors match once and the result compiles, or it raises."""
    for target in PATCHES[name].targets:
        if release in target.releases:
            content = (venvs.site(edited(release)) / target.file).read_bytes()
            function = compose_script.find_function(ast.parse(content), target.function)
            assert function is not None
            assert compose_script.function_sha256(function) == target.ast_sha256[release]
    patched(edited(release), release, (name,))


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_it_only_adds(name: str, release: str, edited: Venvs) -> None:
    """Without the lines that a patch adds, the wheel's file is left, byte for byte; elsewhere no code changes."""
    functions = {
        (target.file, target.function.split(".")[0])
        for target in PATCHES[name].targets
        if release in target.releases
    }
    changed = set()
    for file, content in patched(edited(release), release, (name,)).items():
        wheel = (venvs.site(edited(release)) / file).read_bytes()
        remaining = iter(content.splitlines())
        assert all(line in remaining for line in wheel.splitlines()), "a line of the wheel is gone or moved"
        before, after = ast.parse(wheel), ast.parse(content)
        for node, other in zip(before.body, after.body, strict=False):
            if ast.unparse(node) != ast.unparse(other):
                changed.add((file, getattr(node, "name", "")))
    assert changed == functions


@pytest.mark.parametrize("name", definition.names())
def test_definition_is_complete(name: str) -> None:
    patch = PATCHES[name]
    for target in patch.targets:
        assert sorted(target.ast_sha256) == sorted(target.releases)
    code = "".join(
        (target.append or "") + "".join(edit.code for edit in target.edits) for target in patch.targets
    )
    assert "_ddtool_" in code and "@DDTOOL_SHA@" in code
    assert {"loaded", "reached", "unproven"} <= set(patch.events)
    assert (patch.expires is None) == (patch.kind == "fix")
    assert not set(patch.absent) & set(patch.releases)
    for absent in patch.absent.values():
        assert absent.replaced_by in {None, *PATCHES}


def test_every_release_is_answered_for() -> None:
    """A release that a patch does not claim is named with the reason, so that the table has no empty cell."""
    for name, release in itertools.product(PATCHES, RELEASES):
        assert release in PATCHES[name].releases or release in PATCHES[name].absent, (name, release)
