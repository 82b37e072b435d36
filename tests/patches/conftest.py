"""The real wheels of every release that a patch claims, and a CPU environment that can import them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import venvs

from ddtool.sandbox.records import cache_root

RELEASES = ("0.5.11", "0.5.12.post1")


@pytest.fixture(scope="session")
def wheel() -> Callable[[str], Path]:
    """release → its wheel, downloaded once into the cache."""

    def get(release: str) -> Path:
        folder = cache_root() / "wheels"
        found = sorted(folder.glob(f"sglang-{release}-*.whl"))
        if not found:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", "3.11", "--dest", str(folder), f"sglang=={release}"]
            subprocess.run(command, check=True)
            found = sorted(folder.glob(f"sglang-{release}-*.whl"))
        return found[0]

    return get


@pytest.fixture(scope="session")
def unpacked(wheel: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """release → a venv with that wheel's files; shared, so read only."""
    made: dict[str, Path] = {}

    def get(release: str) -> Path:
        if release not in made:
            venv = tmp_path_factory.mktemp(f"sglang-{release}") / "venv"
            venvs.make(venv, {})
            for info in venvs.site(venv).glob("*.dist-info"):
                (info / "RECORD").unlink()
                info.rmdir()
            with zipfile.ZipFile(wheel(release)) as archive:
                archive.extractall(venvs.site(venv))
            made[release] = venv
        return made[release]

    return get


@pytest.fixture
def venv(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """release → a venv of this test's own, hard-linked to the shared one."""
    return lambda release: venvs.clone(unpacked(release), tmp_path / f"venv-{release}")


@pytest.fixture(scope="session")
def engine_path() -> list[str]:
    """sys.path entries with torch for CPU, SGLang's other imports and the stand-ins, from the sandbox's image."""
    from ddtool.sandbox import image

    layers = image.engine_layers(lambda _: None)
    entries = []
    for inside in ("opt/sglang/cpu-standins", "opt/sglang/venv/lib/python3.11/site-packages"):
        entries += [str(layer / inside) for layer in layers if (layer / inside).is_dir()]
    return entries
