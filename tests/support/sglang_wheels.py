"""SGLang's own wheels, downloaded once into ddtool's cache, and environments made of them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from ddtool.sandbox.records import cache_root

from . import venvs


def wheel(release: str) -> Path:
    """The release's wheel (7 to 40 MB)."""
    folder = cache_root() / "wheels"
    if not (found := sorted(folder.glob(f"sglang-{release}-*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.11", "--dest", str(folder), f"sglang=={release}"]
        subprocess.run(command, check=True)
        found = sorted(folder.glob(f"sglang-{release}-*.whl"))
    return found[0]


def unpack(release: str, venv: Path) -> Path:
    """A venv with all of the wheel's files and its own RECORD."""
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    with zipfile.ZipFile(wheel(release)) as archive:
        archive.extractall(venvs.site(venv))
    return venv


def engine_path() -> list[str]:
    """sys.path entries with torch for CPU, SGLang's other imports and the stand-ins, from the sandbox's image."""
    from ddtool.sandbox import image

    layers = image.engine_layers(lambda _: None)
    entries = []
    for inside in ("opt/sglang/cpu-standins", "opt/sglang/venv/lib/python3.11/site-packages"):
        entries += [str(layer / inside) for layer in layers if (layer / inside).is_dir()]
    return entries
