"""A hand-made unit on a host as a profile, and whether that profile can be deployed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ddtool.deploy.session import Session
from ddtool.errors import ProfileError
from ddtool.profile import from_unit, load
from ddtool.profile.findings import Finding
from ddtool.profile.from_unit import FromUnit
from ddtool.profile.validate import validate


def read_unit(host: str, unit: str) -> FromUnit:
    """Reads only. Raises ProfileError when nobody can tell what the unit starts."""
    with Session(host) as session:
        found = session.agent.call("unit.read", deadline_s=30.0, unit_name=unit.removesuffix(".service"))
        started = from_unit.what_starts(found)
        launch = started.launch
        engine = session.agent.call(
            "unit.engine",
            deadline_s=60.0,
            python=launch.python,
            venv=launch.venv,
            cwd=launch.cwd,
            paths=from_unit.paths_of(started, found),
        )
    return from_unit.to_profile(found, started, engine)


def judged(text: str, name: str) -> tuple[str | None, list[Finding]]:
    """(why it does not load, what validation finds) of a profile's text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            return None, validate(load(str(path)))
        except ProfileError as error:
            return error.message.replace(f"{folder}/", ""), []
