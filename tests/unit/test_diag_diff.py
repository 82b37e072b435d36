"""`diag show --diff`: what a patch changes, as a diff that git applies, against a host, a wheel or a checkout."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
import yaml
from support import installers, venvs
from support.cli import ddtool

from ddtool.agent import patch_diff
from ddtool.agent.compose_script import find_function, function_sha256, read_source
from ddtool.agent.errors import Drift
from ddtool.agent.errors import UsageError as AgentUsage
from ddtool.diagnostics import definition, diff
from ddtool.errors import UsageError

from .test_diag import Box

A = "sglang/srt/a.py"
SOURCE = b"def f(x):\n    y = x\n    return y\n"
FILES = {A: SOURCE, "sglang/__init__.py": b""}
KNOWN = function_sha256(find_function(read_source(SOURCE, A).tree, "f"))  # type: ignore[arg-type]


@pytest.fixture
def patch(tmp_path: Path) -> definition.Definition:
    folder = tmp_path / "patches/width"
    folder.mkdir(parents=True)
    edits = [{"anchor": "y = x", "place": "replace", "code": "y = x + 1"}]
    target = {"file": A, "function": "f", "releases": ["1.0"], "ast_sha256": {"1.0": KNOWN}, "edits": edits}
    about = {
        "schema": "ddtool.patch/1",
        "name": "width",
        "kind": "fix",
        "summary": "s",
        "cost": "none",
        "events": {},
    }
    (folder / "patch.yaml").write_text(yaml.safe_dump({**about, "targets": [target]}))
    return definition.read(folder)


def applied(folder: Path, text: bytes) -> bytes:
    """What git makes of it in a checkout."""
    subprocess.run(["git", "apply", "-"], input=text, cwd=folder, check=True)
    (file,) = folder.rglob("a.py")
    return file.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        SOURCE,
        SOURCE.replace(b"\n", b"\r\n"),
        SOURCE.rstrip(b"\n"),
        "# coding: latin-1\nN = 'é'\n".encode("latin-1") + SOURCE,
        b"# page\x0c\x1c\n" + SOURCE,
        b"\xef\xbb\xbf" + SOURCE,
    ],
    ids=["plain", "crlf", "no-newline", "latin-1", "form-feed", "bom"],
)
@pytest.mark.parametrize("inside", ["", "python/", "src/"])
def test_git_applies_it_in_a_checkout(
    tmp_path: Path, patch: definition.Definition, content: bytes, inside: str
) -> None:
    repository = tmp_path / "repository"
    path = repository / inside / A
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = diff.local(patch, str(repository))
    assert [(one.file, found.unknown) for one in found.files] == [(inside + A, [])]
    assert applied(repository, found.files[0].diff) == content.replace(b"y = x", b"y = x + 1")


def test_a_wheel_needs_no_host(tmp_path: Path, patch: definition.Definition) -> None:
    wheel = installers.build(tmp_path, FILES, "1.0")
    (one,) = diff.local(patch, str(wheel)).files
    assert (one.file, one.against) == (A, str(wheel))
    assert b"-    y = x\n+    y = x + 1\n" in one.diff


def test_an_unknown_version_is_diffed_and_said(tmp_path: Path, patch: definition.Definition) -> None:
    wheel = installers.build(tmp_path, {**FILES, A: SOURCE.replace(b"return y", b"return -y")}, "9.0")
    found = diff.local(patch, str(wheel))
    assert b"+    y = x + 1" in found.files[0].diff
    assert [(item["function"], "return -y" in item["source"]) for item in found.unknown] == [("f", True)]


def test_what_cannot_be_had_says_why(tmp_path: Path, patch: definition.Definition) -> None:
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    for against, why in (
        (str(tmp_path / "broken.whl"), "cannot be read as a wheel"),
        (str(tmp_path / "none.whl"), "cannot be read as a wheel"),
        (str(tmp_path), "has none of the files that width edits: sglang/srt/a.py"),
    ):
        with pytest.raises(UsageError, match=why):
            diff.local(patch, against)
    wheel = installers.build(tmp_path / "w", {**FILES, A: SOURCE.replace(b"y = x", b"y = 2")}, "1.0")
    with pytest.raises(UsageError, match=r"the anchor `y = x` matches 0 times") as refused:
        diff.local(patch, str(wheel))
    assert "ddtool diag show width" in (refused.value.hint or "")


@pytest.mark.parametrize("content", [SOURCE.replace(b"def f", b"def g"), None], ids=["function", "file"])
def test_a_release_that_lacks_it_names_the_patch_to_use_there(
    tmp_path: Path, patch: definition.Definition, content: bytes | None
) -> None:
    """Whether the function or its whole file is gone; on a host and without one."""
    absent = {"2.0": definition.Absent(why="f is gone", replaced_by="other")}
    lacking = patch.model_copy(update={"absent": absent})
    files = {name: text for name, text in {**FILES, A: content}.items() if text is not None}
    wheel = installers.build(tmp_path, files, "2.0")
    with pytest.raises(UsageError, match=r"width has nothing to edit in sglang 2\.0: f is gone") as refused:
        diff.local(lacking, str(wheel))
    assert "diag enable other" in (refused.value.hint or "")
    host = Host(tmp_path, lacking, files, "2.0")
    with pytest.raises(AgentUsage, match="f is gone"):
        host.diff()


def test_a_path_is_local_and_a_name_is_a_baseline() -> None:
    assert diff.is_local("./fork") and diff.is_local("x.whl") and not diff.is_local("fork")


class Host(Box):
    def __init__(
        self, root: Path, patch: definition.Definition, files: dict[str, bytes] = FILES, version: str = "1.0"
    ) -> None:
        super().__init__(root, venvs.make(root / "venv", files, version))
        self.patch = patch.to_json()
        self.file = self.site / A

    def diff(self, against: str = "baseline") -> tuple[str, str]:
        """(what it is against, the diff)."""
        (one,) = patch_diff.diff(self.ctx, str(self.venv), self.patch, against)["files"]
        return one["against"], base64.b64decode(one["diff"]).decode()


def test_on_a_host_it_starts_from_the_baseline_whatever_is_enabled(
    tmp_path: Path, patch: definition.Definition
) -> None:
    host = Host(tmp_path, patch)
    clean = host.diff()
    assert clean[0] == "wheel:sglang-1.0" and "-    y = x\n+    y = x + 1\n" in clean[1]
    before = sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    host.diff()
    assert sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    host.do("toggle", enable=[host.patch])
    assert host.diff() == clean


def test_on_a_fork_it_starts_from_the_adopted_bytes_or_the_wheels(
    tmp_path: Path, patch: definition.Definition
) -> None:
    host = Host(tmp_path, patch)
    host.file.write_bytes(b"import os\n" + SOURCE)
    against, text = host.diff()
    assert "no baseline" in against and " import os" in text
    with pytest.raises(Drift, match="the wheel's bytes are not on this host") as refused:
        host.diff("wheel")
    assert "--against FILE.whl" in (refused.value.hint or "")
    host.do("adopt", name="fork", who="ann")
    assert host.diff() == host.diff("fork") == ("adopted:fork", text)
    host.file.with_name("a.py.bak").write_bytes(SOURCE)
    assert " import os" not in host.diff("wheel")[1]
    with pytest.raises(AgentUsage, match="no baseline 'forc'"):
        host.diff("forc")


def test_the_command_prints_the_diff_alone(tmp_path: Path) -> None:
    """A pipe gets what git applies; words go to stderr."""
    patch = definition.load("graph-copy")
    source = (
        b"from typing import Dict, List, Tuple\nimport torch\n\n\ndef _grouped_foreach_copy_(dsts, srcs):\n"
    )
    source += b"    groups: Dict[Tuple[torch.dtype, torch.dtype], Tuple[List, List]] = {}\n"
    wheel = installers.build(tmp_path, {patch.targets[0].file: source}, "0.5.12.post1")
    done = ddtool("diag", "show", "graph-copy", "--diff", "--against", str(wheel))
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.startswith("--- a/sglang/srt/") and "+    _ddtool_graph_copy(dsts, srcs)" in done.stdout
    )
    assert "was not checked on this version" in done.stderr and "proposed: before `groups" in done.stderr
    assert "against " in done.stderr
    assert ddtool("diag", "show", "graph-copy", "--against", str(wheel)).returncode == 2
