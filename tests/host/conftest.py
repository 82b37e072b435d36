"""Sandbox hosts for tests. They end with this process, however it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support import faults as all_faults

from ddtool import sandbox

Boot = Callable[..., sandbox.Sandbox]


@pytest.fixture(scope="session")
def boot(sandbox_state: Path) -> Boot:
    """sandbox.up, owned by this process. Skips only off Linux or without root, and never in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = "host tests need Linux and root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)

    def up(name: str, **options: object) -> sandbox.Sandbox:
        return sandbox.up(name, **{"owner": os.getpid(), **options})

    return up


@pytest.fixture(scope="module")
def host(boot: Boot, request: pytest.FixtureRequest) -> Iterator[sandbox.Sandbox]:
    """A bare sandbox for the tests of one file."""
    name = request.module.__name__.rpartition(".")[2].replace("_", "-").lower()[:31]
    yield boot(name)
    sandbox.down(name)


@pytest.fixture
def faults(host: sandbox.Sandbox) -> Iterator[ModuleType]:
    """The functions of support/faults.py; the host is healthy again after the test."""
    yield all_faults
    all_faults.clear(host)
