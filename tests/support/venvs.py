"""Virtual environments with an installed `sglang`, small or real, for tests of diagnostics."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def site(venv: Path) -> Path:
    return venv / SITE


def make(venv: Path, files: dict[str, bytes], version: str = "0.5.12.post1") -> Path:
    """A venv whose sglang has these files (relative names) and a RECORD that says so."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    site(venv).mkdir(parents=True)
    install(venv, files, version)
    return venv


def install(venv: Path, files: dict[str, bytes], version: str) -> None:
    """As an installer does: replace the package's files and its dist-info."""
    for old in site(venv).glob("sglang-*.dist-info"):
        shutil.rmtree(old)
    for name, content in files.items():
        path = site(venv) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(path.name + ".new")
        temp.write_bytes(content)
        temp.replace(path)
    write_record(venv, files, version)


def write_record(venv: Path, files: dict[str, bytes], version: str) -> None:
    info = site(venv) / f"sglang-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text(record(files, info.name))


def record(files: Mapping[str, bytes], info: str) -> str:
    """The RECORD of these files and of itself; `info`: the name of the dist-info folder."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    return out.getvalue()


def clone(tree: Path, target: Path) -> Path:
    """A copy whose files share their inodes with the original, as uv installs from its cache."""
    shutil.copytree(tree, target, symlinks=True, copy_function=os.link)
    return target
