"""How two releases differ. Pure; takes the host's answers to `releases.contents`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddtool.deploy.plan import Change, listed, unified

Contents = Mapping[str, Any]
ENVIRONMENT = "Environment="
NOT_NOTED = ["not noted in that release"]


def difference(before: Contents, after: Contents) -> list[Change]:
    """One row for each part that differs, with its diff; [] when only their numbers do."""
    parts = [
        *((name, as_text(name, before), as_text(name, after)) for name in TEXTS),
        *((name, str(before[name]), str(after[name])) for name in ("wheel", "engine", "probe", "venv")),
    ]
    return [changed(name, old, new) for name, old, new in parts if old != new]


def changed(name: str, old: str, new: str) -> Change:
    if name in TEXTS:
        diff = unified(old, new, name).splitlines(keepends=True)[2:]  # its two names are those of a plan
        return Change("change", name, diff="".join(diff))
    return Change("change", name, f"{old} → {new}")


def as_text(name: str, release: Contents) -> str:
    return listed(TEXTS[name](release))


def unit(release: Contents) -> list[str]:
    """Without its environment, which is a part of its own, and with `@RELEASE@` for the release's folder."""
    return [line for line in release["unit_text"].splitlines() if not line.startswith(ENVIRONMENT)]


def environment(release: Contents) -> list[str]:
    """`NAME=value`; of what holds a secret the name alone: `secrets` says whether its value differs."""
    shown = [
        line.removeprefix(ENVIRONMENT).strip('"')
        for line in release["unit_text"].splitlines()
        if line.startswith(ENVIRONMENT)
    ]
    return sorted([*shown, *(f"{name} (secret)" for name in release["secret_env"])])


def patches(release: Contents) -> list[str]:
    noted = release["patches"]
    return NOT_NOTED if noted is None else [f"{item['name']} {item['sha'][:12]}" for item in noted]


def secrets(release: Contents) -> list[str]:
    return [f"{name}: fingerprint {mark}" for name, mark in sorted(release["secrets"].items())]


def engine_files(release: Contents) -> list[str]:
    return [f"{path} {sha[:12]}" for path, sha in release["engine_files"].items()]


TEXTS = {
    "unit": unit,
    "argv": lambda release: release["argv"],
    "config": lambda release: release["config"],
    "environment": environment,
    "secrets": secrets,
    "patches when it was made": patches,
    "engine files": engine_files,
}
