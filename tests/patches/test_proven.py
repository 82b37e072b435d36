"""Every patch with a probe, executed in the real SGLang of its releases: it speaks when provoked, and only then."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import patch_probe
from support.patch_probe import Answer

from ddtool.diagnostics import definition

from . import sweep
from .conftest import MAIN

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
PATCHES = {patch.name: patch for patch in definition.load_all()}
CLAIMS = [
    pytest.param(
        patch.name, release, marks=[] if release in MAIN else [pytest.mark.slow], id=f"{patch.name}-{release}"
    )
    for patch in PATCHES.values()
    for release in patch.releases
    if patch_probe.probe_of(patch.name).is_file()
]
Answers = Callable[[str], dict[str, Answer]]


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_provoked_it_speaks_and_healthy_it_is_silent(name: str, release: str, answers: Answers) -> None:
    answer = answers(release)[name]
    assert patch_probe.shortcomings(answer, PATCHES[name].kind == "diagnostic") == []


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_what_docs_call_proven_is_what_happened(name: str, release: str, answers: Answers) -> None:
    """The recorded proof is of this code, and of these cases."""
    proof = json.loads(sweep.RESULTS.read_text())[name][release]
    again = sweep.proof(answers(release)[name], PATCHES[name].code_sha(release))
    kept = ("code", "fired", "silent", "unreached")
    assert {key: proof[key] for key in kept} == {key: again[key] for key in kept}, (
        "run tests/patches/sweep.py, then docs/generate_patches.py"
    )


def test_the_table_of_releases_is_up_to_date() -> None:
    docs = Path(__file__).parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("generate_patches", docs / "generate_patches.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (docs / "patches.md").read_text() == generate.page(), "run docs/generate_patches.py"


@pytest.mark.parametrize(("name", "release"), CLAIMS)
def test_markers_and_proof_name_the_patch(name: str, release: str, answers: Answers) -> None:
    answer, patch = answers(release)[name], PATCHES[name]
    files = {target.file for target in patch.targets if release in target.releases}
    assert {marker["event"] for marker in answer.at_import} == {"loaded"}
    assert {marker["file"] for marker in answer.at_import} == files
    outcomes = answer.patched.values()
    said = [marker for outcome in outcomes for marker in (*outcome.markers, *outcome.reached)]
    assert {marker["file"] for outcome in outcomes for marker in outcome.reached} == files
    for marker in (*answer.at_import, *said):
        assert (marker["patch"], marker["sha"]) == (name, patch.sha)
        assert {"worker", "rank", "pid"} <= set(marker) and marker["event"] in patch.events
        json.dumps(marker)
    proven = {
        item["file"] for item in answer.proof["patches"] if (item["name"], item["sha"]) == (name, patch.sha)
    }
    assert proven == files and answer.proof["pid"] == answer.at_import[0]["pid"]
