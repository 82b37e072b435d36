"""Results, one JSON file a cell. A cell that is there is not measured again: a run that was cut off goes on."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import tarfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any

SCHEMA = "ddtool.gpu-cell/1"
PACKAGES = ("torch", "triton", "sglang", "sglang-kernel", "transformers", "flashinfer-python")


class Cells:
    """Files NAME.json in `folder`, and all of `folder` again as `RUN.tar.gz` under $OUT after each.

    One archive, because few files come back from a lent machine. A command finds $OUT empty there, but not `folder`.
    """

    def __init__(self, folder: Path, run: str, fingerprint: Mapping[str, Any]) -> None:
        self.folder = folder / run
        self._run, self.fingerprint = run, fingerprint
        self._lock = Lock()
        self.folder.mkdir(parents=True, exist_ok=True)

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self._path(name).exists()]

    def read(self, name: str) -> Any:
        return json.loads(self._path(name).read_text())

    def write(self, name: str, result: Mapping[str, Any]) -> None:
        cell = {"schema": SCHEMA, "run": self._run, "cell": name, **self.fingerprint, **result}
        whole(self._path(name), json.dumps(cell, indent=1) + "\n")
        self.save()

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def arm_log(self, arm: str) -> Path:
        return self.log(arm_file(arm))

    def save(self) -> None:
        out = os.environ.get("OUT")
        if out:
            with self._lock, tarfile.open(Path(out) / f"{self._run}.tar.gz", "w:gz") as archive:
                archive.add(self.folder, self._run)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def whole(path: Path, text: str) -> None:
    """Written aside and renamed: what stands under its name is never half of it."""
    aside = path.with_suffix(".partial")
    aside.write_text(text)
    aside.replace(path)


def fingerprint(commit: str) -> dict[str, Any]:
    """Under what a number was measured; every cell carries it."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit,
        "engine": engine(),
        "card": card(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := installed(name))},
    }


def engine() -> str | None:
    found = installed("ddtool-engine")
    return found.partition("+")[2] if found else None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def card() -> str | None:
    """Name, memory and driver; None without a GPU."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def common_options(parser: ArgumentParser) -> None:
    """What every script takes."""
    home = Path(os.environ.get("GPU_HOME", "/tmp/ddtool-gpu"))
    parser.add_argument("--commit", required=True, help="written into every cell")
    parser.add_argument(
        "--cells", type=Path, default=home / "cells", help="where cells are; those there are done"
    )
    parser.add_argument(
        "--platform", choices=("gpu", "cpu"), default="gpu", help="cpu: a rehearsal, no measurement"
    )


def variables(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words as an environment."""
    pairs = [word.partition("=") for word in words]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise SystemExit(f"--env {wrong[0]}: expected NAME=VALUE")
    return {name: value for name, _, value in pairs}


def arm_file(text: str) -> str:
    """An arm's text as a file name."""
    return re.sub(r"[^a-zA-Z0-9]", "-", text)


def run_name(text: str) -> str:
    """A file name that survives every copy."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", text):
        raise ValueError(f"{text!r}: letters, digits, - and _ only")
    return text


def prompts(count: int) -> list[str]:
    texts: list[str] = json.loads((Path(__file__).parent / "prompts.json").read_text())
    if count > len(texts):
        raise SystemExit(f"--prompts {count}: there are {len(texts)}")
    return texts[:count]


def open_cells(options: Namespace, run: str) -> Cells:
    return Cells(options.cells, run, fingerprint(options.commit))
