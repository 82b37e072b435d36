"""Going to a host early: what came of it is told where the agent is wanted, an agent is started once, and nobody is
asked from behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddtool.cli import options
from ddtool.deploy import session
from ddtool.errors import AuthenticationFailed, ConnectTimeout, PreflightError, ProfileError


class Opened:
    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Started:
    def __init__(self, host: Opened) -> None:
        if host.name == "bare":
            raise PreflightError("no python3")
        self.host = host
        self.in_front = threading.current_thread() is threading.main_thread()


Ask = Callable[[str], "str | None"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """Each host that was opened. `locked` has a key with a passphrase, asked for in the foreground only."""
    seen: list[Opened] = []

    def open_host(name: str, ask: Ask = lambda path: "right") -> Any:
        if name == "locked" and not ask("id_ed25519"):
            raise AuthenticationFailed("the key was passed over")
        if name == "refusing":
            raise AuthenticationFailed("no")
        seen.append(Opened(name))
        return seen[-1]

    monkeypatch.setattr(session, "open_host", open_host)
    monkeypatch.setattr(session, "Agent", Started)
    return seen


def test_an_agent_that_was_begun_is_the_one_that_is_given(opened: list[Opened]) -> None:
    session.open_soon("here")
    early: Any = session.open_agent("here")
    later: Any = session.open_agent("here")
    assert [host.name for host in opened] == ["here", "here"]
    assert (early.host, early.in_front) == (opened[0], False)
    assert (later.host, later.in_front) == (opened[1], True)


def test_an_error_is_raised_where_the_agent_is_wanted(opened: list[Opened]) -> None:
    session.open_soon("refusing")
    with pytest.raises(AuthenticationFailed):
        session.open_agent("refusing")
    session.open_soon("bare")
    with pytest.raises(PreflightError):
        session.open_agent("bare")
    assert [(host.name, host.closed) for host in opened] == [("bare", True)]


def test_a_passphrase_is_asked_for_in_the_foreground(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    session.open_soon("locked")
    agent: Any = session.open_agent("locked")
    assert (agent.host, agent.in_front, len(opened)) == (opened[0], True, 1)


def test_without_a_terminal_a_locked_key_is_passed_over(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    session.open_soon("locked")
    with pytest.raises(AuthenticationFailed, match="passed over"):
        session.open_agent("locked")


def test_a_profile_that_does_not_fit_is_told_while_the_host_is_still_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def open_host(name: str, ask: Ask) -> Any:
        answers.wait()
        raise ConnectTimeout("silent")

    monkeypatch.setattr(session, "open_host", open_host)
    profile = tmp_path / "wrong.yaml"
    profile.write_text("modle: {}\n")
    try:
        with pytest.raises(ProfileError, match="did you mean model"):
            options.selected(str(profile), None, "silent")
    finally:
        answers.set()
    with pytest.raises(ConnectTimeout):
        session.open_agent("silent")


def test_nothing_heavy_is_loaded_before_the_host_is_called(tmp_path: Path) -> None:
    """The host takes its time to answer: that is when paramiko, pydantic and the rest are loaded."""
    profile = tmp_path / "named.yaml"
    profile.write_text("nothing is read of it\n")
    script = (
        "import sys\nfrom ddtool.cli import options\n"
        f"assert options.host_of({str(profile)!r}, 'gpu') == 'gpu'\n"
        "import ddtool.deploy.session, ddtool.transport.ssh\n"
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    heavy = ["paramiko", "cryptography", "pydantic", "yaml", "rich", "zipfile", "ddtool.profile.schema"]
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
