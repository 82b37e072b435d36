"""Small real wheels of `sglang`, and real environments that an installer puts them into."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from . import wheels


def build(folder: Path, files: Mapping[str, bytes], version: str) -> Path:
    """A wheel of `sglang` with these files."""
    return wheels.build(folder, "sglang", version, files)


def project(folder: Path, files: Mapping[str, bytes], version: str) -> Path:
    """A checkout that can be installed without a network, editable: it is its own build backend."""
    for name, content in files.items():
        path = folder / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "sglang"\nversion = "{version}"\n'
    )
    inside = {"sglang_editable.pth": f"{folder / 'python'}\n".encode()}
    wheel = build(folder / "built", inside, version)
    (folder / "backend.py").write_text(
        "import shutil\n"
        "def build_editable(folder, settings=None, metadata=None):\n"
        f"    shutil.copy({str(wheel)!r}, folder)\n"
        f"    return {wheel.name!r}\n"
        "build_wheel = build_editable\n"
    )
    return folder


def environment(folder: Path) -> Path:
    """A real virtual environment, without pip, as uv makes them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def pip_install(venv: Path, *what: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(venv / "bin/python"), "install", "--quiet"]
    flags = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([*command, *flags, *what], check=True, env=environment)
