"""Every shipped patch on the real wheel of every release that it claims."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from support import venvs

from ddtool.agent import compose_script
from ddtool.agent.compose import compose
from ddtool.diagnostics import definition

pytestmark = pytest.mark.patches
CLAIMS = [(patch.name, release) for patch in definition.load_all() for release in patch.releases]
Venvs = Callable[[str], Path]


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_fits_compiles_and_knows_the_function(name: str, release: str, edited: Venvs) -> None:
    patch = definition.load(name)
    targets = [target for target in patch.targets if release in target.releases]
    for target in targets:
        content = (venvs.site(edited(release)) / target.file).read_bytes()
        source = compose_script.read_source(content, target.file)
        function = compose_script.find_function(source.tree, target.function)
        assert function is not None
        assert compose_script.function_sha256(function) == target.ast_sha256[release]
        (composed,) = compose(str(edited(release)), [(target.file, content, [patch.to_json()])])
        assert composed.unknown == []


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_a_diagnostic_only_adds(name: str, release: str, edited: Venvs) -> None:
    """Without the lines that a diagnostic adds, the wheel's file is left, byte for byte; elsewhere no code changes."""
    patch = definition.load(name)
    if patch.kind != "diagnostic":
        pytest.skip("a fix replaces code")
    for target in [target for target in patch.targets if release in target.releases]:
        content = (venvs.site(edited(release)) / target.file).read_bytes()
        (composed,) = compose(str(edited(release)), [(target.file, content, [patch.to_json()])])
        remaining = iter(composed.content.splitlines())
        assert all(line in remaining for line in content.splitlines()), "a line of the wheel is gone or moved"
        before, after = ast.parse(content), ast.parse(composed.content)
        changed = [
            node.name
            for node, other in zip(before.body, after.body, strict=False)
            if compose_script.normal_form(node) != compose_script.normal_form(other) and hasattr(node, "name")
        ]
        assert changed == [target.function.split(".")[0]]


@pytest.mark.parametrize("name", definition.names())
def test_definition_is_complete(name: str) -> None:
    patch = definition.load(name)
    for target in patch.targets:
        assert sorted(target.ast_sha256) == sorted(target.releases)
    code = "".join(
        (target.append or "") + "".join(edit.code for edit in target.edits) for target in patch.targets
    )
    assert "_ddtool_" in code and "@DDTOOL_SHA@" in code
    assert {"loaded"} <= set(patch.events)
    assert (patch.expires is None) == (patch.kind == "fix")
