"""Small real wheels, and a pip that looks for wheels in one folder and nowhere else."""

from __future__ import annotations

import ensurepip
import os
import random
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import mini, venvs


def build(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    requires_python: str | None = None,
) -> Path:
    """A wheel with these files, its metadata and a RECORD."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    about = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    about += [f"Requires-Dist: {line}\n" for line in requires]
    about += [f"Requires-Python: {requires_python}\n"] if requires_python else []
    members = {
        **files,
        f"{info}/METADATA": "".join(about).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**members, f"{info}/RECORD": venvs.record(members, info).encode()}.items():
            archive.writestr(path, content)
    return wheel


def mini_service(folder: Path, *, words: str = "1.0", ballast: int = 0) -> Path:
    """The mini service and the one package that it needs, with so many bytes that no compression makes smaller."""
    files = {name: data for name, data in mini.dist_files().items() if ".dist-info/" not in name}
    files["sglang/__init__.py"] += b"\nimport mini_words  # what this SGLang depends on\n"
    build(folder, "sglang", mini.VERSION, files, requires=["mini-words>=1"], requires_python=">=3.10")
    inside = {"mini_words/__init__.py": f"VERSION = {words!r}\n".encode()}
    inside["mini_words/ballast"] = random.Random(words).randbytes(ballast)
    build(folder, "mini-words", words, inside)
    return folder


def add_pip(folder: Path) -> Path:
    """The pip that comes with this Python: upstream's keeps it in ensurepip, Debian's in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [Path(ensurepip.__file__).parent / "_bundled", Path("/usr/share/python-wheels")]
    found = [path for place in places for path in place.glob("pip-*.whl")]
    assert found, f"no pip wheel in {places}"
    return Path(shutil.copy(found[0], folder))


def only_from(folder: Path) -> dict[str, str]:
    """Settings of pip: no index, whatever this machine is configured with."""
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
