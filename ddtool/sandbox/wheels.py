"""Downloading the pinned wheels of the sandbox's SGLang with the operator's own pip and its configuration."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtool.errors import DdtoolError, PreflightError
from ddtool.sandbox.rootfs import without_addresses

PYTHON = "3.11"  # Debian 12's, whatever Python runs ddtool
_GLIBC_MINOR = 36  # Debian 12 has glibc 2.36: a wheel for a newer one would not load
_TORCH = "torch"


def read_pins(path: Path) -> list[str]:
    """The requirements in `path`, one a line, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def download(pins: Sequence[str], folder: Path) -> None:
    """Put exactly the wheels of `pins` into `folder`.

    Raises PreflightError when there is no pip, or no CPU build of torch where pip looks; DdtoolError when pip
    fails.
    """
    # torch first: it is the one that needs a setting, and half a gigabyte less is then fetched for nothing
    torch = [pin for pin in pins if pin.startswith(_TORCH + "==")]
    others = [pin for pin in pins if pin not in torch]
    for part in filter(None, (torch, others)):
        result = subprocess.run(
            [*pip_command(), *_arguments(folder), *part],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode:
            raise _failure(result.stdout)


def pip_command() -> list[str]:
    """The operator's pip. Raises PreflightError when there is none."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    why = f"neither {sys.executable} nor the search path has it"
    raise PreflightError("wheels are downloaded with pip", why=why, hint="apt-get install -y python3-pip")


def _arguments(folder: Path) -> list[str]:
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC_MINOR, 4, -1)]
    platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
    # --no-cache-dir: the wheels are installed once and deleted, a second copy in pip's cache would stay
    arguments = ["download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    arguments += [f"--python-version={PYTHON}", f"--dest={folder}"]
    return arguments + [f"--platform={name}" for name in platforms]


def _failure(output: str) -> DdtoolError:
    missing = re.search(r"No matching distribution found for (\S+)", output)
    if missing and missing[1].startswith(_TORCH + "=="):
        return PreflightError(
            f"pip finds no {missing[1]}",
            why="the sandbox runs on the CPU and never takes the CUDA build, several gigabytes, in its place",
            hint="set PIP_EXTRA_INDEX_URL (or extra-index-url in pip.conf) to PyTorch's index of CPU wheels, as its "
            "install page shows it for Linux, pip, CPU; or PIP_FIND_LINKS to a folder that holds the wheel",
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-5:]
    why = without_addresses("\n".join(errors))
    return DdtoolError("pip could not download the sandbox's SGLang", why=why, hint="pip config debug")
