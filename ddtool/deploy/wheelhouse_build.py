"""Collecting wheels for another machine with the operator's own pip, from wherever that is configured to look."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ddtool.deploy import wheel_checks, wheelhouse
from ddtool.deploy.wheelhouse import Target, Wheelhouse
from ddtool.errors import DdtoolError, PreflightError
from ddtool.sandbox.rootfs import without_addresses
from ddtool.sandbox.wheels import pip_command

ROUNDS = 4  # of asking for what pip left out, because it judged by its own Python


def build(
    requested: Sequence[str],
    target: Target,
    folder: Path,
    *,
    with_dependencies: bool,
    progress: Callable[[str], None],
) -> Wheelhouse:
    """Fill `folder` with the wheels of `requested`, all that they need, and pip. Wheels of an older set go.

    PreflightError when something has no wheel for the target; DdtoolError when pip fails otherwise. Then the folder
    is as it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".collecting-", dir=folder) as work:
        collected = _closed(list(requested), target, Path(work), with_dependencies, progress)
        _download(["pip"], target, Path(work, "pip"), with_dependencies=False)
        installer = next(Path(work, "pip").glob("*.whl"))
        for path in [*collected, installer]:
            path.replace(folder / path.name)
        names = {path.name for path in [*collected, installer]}
    wheels = sorted((wheelhouse.read_wheel(folder / name) for name in names), key=lambda wheel: wheel.file)
    house = Wheelhouse(folder, target, tuple(requested), installer.name, tuple(wheels))
    house.write()
    for stale in folder.glob("*.whl"):
        if stale.name not in names:
            stale.unlink()
    return house


def _closed(
    requested: list[str],
    target: Target,
    work: Path,
    with_dependencies: bool,
    progress: Callable[[str], None],
) -> list[Path]:
    """Wheel files in which nothing is missing on the target."""
    asked, into = requested, work / "set"
    for _ in range(ROUNDS):
        progress(f"collecting wheels of {', '.join(asked[:3])}{' …' if len(asked) > 3 else ''} for {target}")
        _download(asked, target, into, with_dependencies)
        found = sorted(into.glob("*.whl"))
        missing = wheel_checks.unmet([wheelhouse.read_wheel(path) for path in found], target, requested)
        if not missing or not with_dependencies:
            for need in missing:
                progress(f"not collected, as you asked for no dependencies: {need}")
            return found
        asked = [*requested, *missing]
        shutil.rmtree(into)  # two versions of one package would be no set
    raise DdtoolError(
        f"the wheels that pip chooses still lack {', '.join(missing)}",
        hint="name it in the requirements file, or collect a fixed set with --no-deps",
    )


def _download(requirements: Sequence[str], target: Target, into: Path, with_dependencies: bool) -> None:
    command = [*pip_command(), "download", "--quiet", "--no-input", "--only-binary=:all:", f"--dest={into}"]
    command += [f"--python-version={target.minor}", "--implementation=cp"]
    command += [f"--platform={name}" for name in wheel_checks.platforms(target)]
    command += [] if with_dependencies else ["--no-deps"]
    done = subprocess.run(
        [*command, *requirements],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if done.returncode:
        raise _failure(done.stdout, target)


def _failure(output: str, target: Target) -> DdtoolError:
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")] or output.splitlines()[-5:]
    why = without_addresses("\n".join(errors))
    missing = re.search(r"No matching distribution found for ([^\s;(]+)", output)
    if missing:
        return PreflightError(
            f"there is no wheel of {missing[1]} for {target}, where pip looks",
            why=why,
            hint=f"build one (`pip wheel {missing[1]}` on such a machine) and name its folder in PIP_FIND_LINKS",
        )
    return DdtoolError("pip could not collect the wheels", why=why, hint="pip config debug")
