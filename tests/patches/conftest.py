"""The real wheels of every release that a patch claims, and a CPU environment that can import them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import patch_probe, sglang_wheels, venvs
from support.patch_probe import Answer

from ddtool.agent.registry import Context
from ddtool.diagnostics import definition

from . import forks

# Patches are executed on these by default, on every other release that a patch claims when marked slow
MAIN = ("0.5.12.post1", "0.5.13.post1", "0.5.17")


@pytest.fixture(scope="session")
def wheel() -> Callable[[str], Path]:
    """release → its wheel."""
    return sglang_wheels.wheel


@pytest.fixture(scope="session")
def engine_path() -> list[str]:
    return sglang_wheels.engine_path()


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """release → a venv with that wheel's files; shared, so read only."""
    made: dict[str, Path] = {}

    def get(release: str) -> Path:
        if release not in made:
            made[release] = sglang_wheels.unpack(
                release, tmp_path_factory.mktemp(f"sglang-{release}") / "venv"
            )
        return made[release]

    return get


@pytest.fixture(scope="session")
def edited(wheel: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """release → a venv with only those of the wheel's files that some patch edits there: enough to compile."""
    made: dict[str, Path] = {}

    def get(release: str) -> Path:
        if release not in made:
            targets = [target for patch in definition.load_all() for target in patch.targets]
            files = {target.file for target in targets if release in target.releases}
            with zipfile.ZipFile(wheel(release)) as archive:
                content = {file: archive.read(file) for file in sorted(files)}
            made[release] = venvs.make(
                tmp_path_factory.mktemp(f"edited-{release}") / "venv", content, release
            )
        return made[release]

    return get


@pytest.fixture(scope="session")
def answers(
    unpacked: Callable[[str], Path], engine_path: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Answer]]:
    """release → what every patch with a probe did there, and graph-copy on the forks; one child process, run once."""
    made: dict[str, dict[str, Answer]] = {}

    def get(release: str) -> dict[str, Answer]:
        if release not in made:
            venv, folder = unpacked(release), tmp_path_factory.mktemp(f"probe-{release}")
            jobs = patch_probe.jobs_of(venv, release, definition.load_all())
            jobs += forks.jobs(venv) if release == forks.RELEASE else []
            made[release] = patch_probe.run(venv, release, jobs, engine_path, folder)
        return made[release]

    return get


@pytest.fixture
def venv(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """release → a venv of this test's own, hard-linked to the shared one."""
    return lambda release: venvs.clone(unpacked(release), tmp_path / f"venv-{release}")


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    """The agent of a host that knows nothing yet."""
    state = tmp_path / "state"
    state.mkdir(0o700)
    return Context(state=state, run=tmp_path / "run", units=tmp_path / "units")
