"""Logging in early: what came of it is told where the agent is wanted, and nobody is asked from behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ddtool.deploy import session
from ddtool.errors import AuthenticationFailed

Ask = Callable[[str], "str | None"]


class Opened:
    def __init__(self, where: str) -> None:
        self.where = where


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, Ask | None]]:
    """Each host that was opened: name, whether from the main thread, who would be asked."""
    seen: list[tuple[str, bool, Ask | None]] = []

    def open_host(name: str, ask: Ask | None = None) -> Any:
        seen.append((name, threading.current_thread() is threading.main_thread(), ask))
        if name == "locked" and ask is not None:
            ask("id_ed25519")
        if name == "refusing":
            raise AuthenticationFailed("no")
        return name

    monkeypatch.setattr(session, "open_host", open_host)
    monkeypatch.setattr(session, "Agent", Opened)
    return seen


def test_an_agent_that_was_begun_is_the_one_that_is_given(opened: list[Any]) -> None:
    session.open_soon("here")
    assert session.open_agent("here").where == "here"  # type: ignore[attr-defined]
    assert [(name, main) for name, main, _ in opened] == [("here", False)]
    session.open_agent("here")
    assert [(name, main) for name, main, _ in opened] == [("here", False), ("here", True)]


def test_an_error_is_raised_where_the_agent_is_wanted(opened: list[Any]) -> None:
    session.open_soon("refusing")
    with pytest.raises(AuthenticationFailed):
        session.open_agent("refusing")
    assert len(opened) == 1


def test_a_passphrase_is_asked_for_in_the_foreground(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    session.open_soon("locked")
    assert session.open_agent("locked").where == "locked"  # type: ignore[attr-defined]
    assert [(name, main) for name, main, _ in opened] == [("locked", False), ("locked", True)]
    assert opened[1][2] is None  # the usual way: a person at the terminal
