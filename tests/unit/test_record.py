"""What an installation says about itself, in all the ways that installers leave behind."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from support import venvs

from ddtool.agent import record
from ddtool.agent.disk import sha256
from ddtool.agent.errors import PreflightError, UsageError

FILES = {"sglang/__init__.py": b"", "sglang/srt/a.py": b"A = 1\n", "sglang/srt/b, c.py": b"B = 1\n"}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    return venvs.make(tmp_path / "venv", FILES)


def test_a_clean_install_is_pristine(venv: Path) -> None:
    install = record.find(str(venv))
    assert (install.version, install.unmanaged) == ("0.5.12.post1", None)
    assert record.verify(install) == dict.fromkeys(FILES, "pristine")
    assert record.added(install) == []
    assert install.record["sglang/srt/a.py"] == sha256(FILES["sglang/srt/a.py"])


def test_each_deviation_is_found(venv: Path) -> None:
    site = venvs.site(venv)
    (site / "sglang/srt/a.py").write_bytes(b"A = 2\n")
    (site / "sglang/srt/b, c.py").unlink()
    (site / "sglang/srt/new.py").write_bytes(b"")
    (site / "sglang/srt/__pycache__").mkdir()
    (site / "sglang/srt/__pycache__/a.cpython-311.pyc").write_bytes(b"")
    install = record.find(str(venv))
    expected = {
        "sglang/srt/a.py": "changed",
        "sglang/srt/b, c.py": "missing",
        "sglang/__init__.py": "pristine",
    }
    assert record.verify(install) == expected
    assert record.added(install) == ["sglang/srt/new.py"]


def test_names_of_dists_are_normalised(venv: Path) -> None:
    info = venvs.site(venv) / "Flash_Infer.python-1.2.dist-info"
    info.mkdir()
    assert record.find(str(venv), "flash-infer-python").version == "1.2"


def test_without_record_nothing_is_proven(venv: Path) -> None:
    (venvs.site(venv) / "sglang-0.5.12.post1.dist-info/RECORD").unlink()
    assert "no RECORD" in (record.find(str(venv)).unmanaged or "")


def test_two_versions_at_once_are_an_install_that_broke_off(venv: Path) -> None:
    venvs.write_record(venv, FILES, "0.5.13")
    assert "broke off" in (record.find(str(venv)).unmanaged or "")


@pytest.mark.parametrize("inside", ["", "python", "src"])
def test_an_editable_install_points_to_its_source(venv: Path, tmp_path: Path, inside: str) -> None:
    source = tmp_path / "my fork"
    (source / inside / "sglang").mkdir(parents=True)
    origin = {"url": (source.as_uri()), "dir_info": {"editable": True}}
    (venvs.site(venv) / "sglang-0.5.12.post1.dist-info/direct_url.json").write_text(json.dumps(origin))
    install = record.find(str(venv))
    assert install.root == source / inside and "editable" in (install.unmanaged or "")


def test_a_wheel_installed_from_a_file_is_not_editable(venv: Path) -> None:
    origin = {"url": "file:///wheels/sglang.whl", "archive_info": {}}
    (venvs.site(venv) / "sglang-0.5.12.post1.dist-info/direct_url.json").write_text(json.dumps(origin))
    assert record.find(str(venv)).unmanaged is None


def test_what_is_not_there_is_said(venv: Path, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="vllm is not installed"):
        record.find(str(venv), "vllm")
    with pytest.raises(PreflightError, match="has no site-packages"):
        record.find(str(tmp_path / "nowhere"))


def test_names_cannot_leave_the_package(venv: Path) -> None:
    install = record.find(str(venv))
    for name in ("sglang/../../../etc/passwd", "/etc/passwd", "torch/a.py", ""):
        with pytest.raises(UsageError):
            install.path(name)


def test_agrees_with_an_installer(tmp_path: Path) -> None:
    """A RECORD as pip writes it, of a wheel with odd names."""
    wheel = tmp_path / "w.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    venv = venvs.make(tmp_path / "v", FILES)
    info = venvs.site(venv) / "sglang-0.5.12.post1.dist-info/RECORD"
    info.write_text(info.read_text() + "../../../bin/sglang,sha256=AAAA,10\nsglang/x.pyc,,\nbroken\n\n")
    assert set(record.verify(record.find(str(venv))).values()) == {"pristine"}
