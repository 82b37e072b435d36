"""Whom a wheelhouse is for, in the host's own words: asked of it, or read from a file of its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtool.deploy.offline import read_facts
from ddtool.deploy.session import Session
from ddtool.deploy.wheelhouse import Target
from ddtool.errors import PreflightError
from ddtool.profile import Profile


def target_of(where: str, profile: Profile) -> Target:
    """`where`: a host, or the path of a file ending in .json.

    Raises PreflightError when the host has not the Python that the profile names, or its facts do not say.
    """
    if where.endswith(".json"):
        return _from_facts(read_facts(where), where)
    with Session(where) as session:
        return _from_python(session.agent.call("install.python", python=profile.engine.maker), where)


def _from_facts(facts: Mapping[str, Any], path: str) -> Target:
    """The Python that would make the environment; where an existing one is used, that one's."""
    install, host, venv = facts.get("install"), facts["host"], facts["venv"]
    if install:
        return _from_python(install["python"], path)
    version = venv["python"] if venv["exists"] else host.get("python", "")
    return _from_python({"version": version, **{key: host.get(key) for key in ("machine", "glibc")}}, path)


def _from_python(python: Mapping[str, Any], where: str) -> Target:
    if "error" in python:
        others = ", ".join(python["others"]) or "no other"
        raise PreflightError(
            f"{where}: {python['error']}; it has {others}", hint="--set engine.python=/path/there"
        )
    if not (python["version"] and python["machine"] and python["glibc"]):
        raise PreflightError(
            f"{where} does not say which Python, machine and glibc it has",
            why="wheels are made for glibc; musl and other systems are not supported",
            hint="ddtool doctor --json > facts.json",
        )
    version = python["version"] if python["version"].count(".") > 1 else f"{python['version']}.0"
    return Target(version, python["machine"], python["glibc"])
