"""Requirement files: what to collect wheels for, and the pinned sets that a host installs from an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from ddtool.errors import UsageError

HASH = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")


def lines(path: str) -> Iterator[str]:
    """Each requirement on one line, without comments. UsageError for options of pip: only packages are meant."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    for line in text.replace("\\\n", " ").splitlines():
        line = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if line.startswith("-"):
            raise UsageError(
                f"{path}: `{line}` is an option of pip, not a package", hint="name packages only"
            )
        if line:
            yield line


def wanted(path: str) -> list[str]:
    """Requirements to collect wheels for, hashes left out: the wheelhouse has its own."""
    found = [HASH.sub("", f"{line} ").strip() for line in lines(path)]
    for line in found:
        _parse(line, path)
    return found


def pinned(path: str) -> list[str]:
    """`NAME==VERSION --hash=sha256:…` lines. UsageError for one that lets more than some known files in."""
    found = list(lines(path))
    for line in found:
        need = _parse(line.split(" --hash=")[0], path)
        exact = [one.operator for one in need.specifier] == ["=="] and "*" not in str(need.specifier)
        if not exact or need.url or not HASH.search(line):
            raise UsageError(
                f"{path}: {need.name} has no exact version with a sha256",
                hint="`ddtool wheelhouse build` writes such a file, `pip-compile --generate-hashes` too",
            )
    return found


def _parse(text: str, path: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{path}: `{text}` is not a requirement: {error}") from error
