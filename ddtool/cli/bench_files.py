"""Files that a long run is asked to write at its end: looked at before it begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ddtool.errors import DdtoolError, UsageError


def spare(profile: str, out: str | None) -> None:
    """Raises UsageError where `--out` would replace the profile itself, which the overlay extends."""
    if out is not None and Path(out).resolve() == Path(profile).resolve():
        raise UsageError(
            f"--out {out} is the profile that is tuned",
            why="what is written extends it, so it has to stay",
            hint="--out another FILE",
        )


def check(files: Mapping[str, str | None]) -> None:
    """Raises UsageError for a file that could not be written in the end, by the option that names it."""
    from ddtool.bench.report import check_html

    if files.get("--report"):
        check_html()
    named = {option: Path(name) for option, name in files.items() if name is not None}
    if len({path.resolve() for path in named.values()}) < len(named):
        raise UsageError(f"{' and '.join(named)} are one file", hint="two names")
    for option, path in named.items():
        there = path.exists()
        why = None
        if path.is_dir() or not path.name:
            why = "it is a folder"
        elif not path.parent.is_dir():
            why = f"there is no folder {path.parent}"
        elif not os.access(path if there else path.parent, os.W_OK):
            why = "nothing may be written there"
        if why:
            raise UsageError(f"{option} {path} cannot be written", why=why, hint=f"{option} another FILE")


def write(name: str, text: str, again: str) -> None:
    """What was checked an hour ago may have changed. again: what to type when it has."""
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DdtoolError(
            f"{name} cannot be written: {error.strerror}", why="the result itself is kept", hint=again
        ) from error
