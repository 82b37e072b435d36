"""Who may not do what: each test is an attack that worked once, or must never work. docs/security.md tells of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtool.agent.registry import Context


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    made = Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")
    for folder in (made.state, made.run / "svc", made.units):
        folder.mkdir(parents=True)
    return made
