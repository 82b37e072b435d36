"""What every test relies on: an environment that says nothing of its own, and a place for sandboxes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def scrubbed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of whoever runs the tests reaches them, but DDTOOL_CACHE: it saves building again."""
    home = tmp_path_factory.mktemp("xdg")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DDTOOL_") and name != "DDTOOL_CACHE"]:
            patch.delenv(name)
        for kind in ("CONFIG", "CACHE", "DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        patch.setenv("NO_COLOR", "1")
        patch.delenv("FORCE_COLOR", raising=False)  # to rich, a file is a terminal then
        patch.setenv("LC_ALL", "C.UTF-8")  # in C, tables have no bars and dashes of Unicode
        # A shell's `pytest &` ignores Ctrl-C, and every command that a test starts and interrupts would, too.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@pytest.fixture(autouse=True)
def fresh_consoles() -> None:
    """A console keeps the width of the terminal that it was made for; a test before this one may have had another."""
    from ddtool.cli import output

    for console in (output.stdout, output.stderr):
        console.cache_clear()


@pytest.fixture(scope="session")
def sandbox_state(scrubbed_environment: None) -> Iterator[Path]:
    """A state folder for this session's sandboxes alone. All of them are down when it ends."""
    from ddtool import sandbox

    folder = Path(
        tempfile.mkdtemp(prefix="ddtool-test-")
    )  # short: a socket's path has at most 107 characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_SANDBOX_STATE", str(folder))
        yield folder
        for host in sandbox.running():
            sandbox.down(host.name)
    shutil.rmtree(folder)
