"""What a patch would change, as a unified diff for one's own repository: on a host, in a wheel or in a checkout."""

from __future__ import annotations

import base64
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtool.agent.compose import job_of
from ddtool.agent.compose_script import Job, Refused, compose
from ddtool.agent.errors import UsageError as AgentUsage
from ddtool.agent.managed import patch_of
from ddtool.agent.toggle import refuse_absent
from ddtool.diagnostics.definition import Definition
from ddtool.errors import UsageError

WHEEL = re.compile(r"^sglang-(?P<version>[^-]+)-.*\.whl$")
# Where a checkout keeps the package
INSIDE = ("", "python/", "src/")
Unknown = Mapping[str, Any]


@dataclass(frozen=True)
class FileDiff:
    """file: its name in the repository; against: what the diff starts from; diff: bytes that `git apply` takes."""

    file: str
    against: str
    diff: bytes


@dataclass(frozen=True)
class PatchDiff:
    """unknown: functions that the patch was not checked on, as in a preview: `{patch, file, function, source, …}`."""

    files: list[FileDiff]
    unknown: list[Unknown]


def is_local(against: str) -> bool:
    """Whether it names a wheel file or a folder here, not a baseline on the host."""
    return "/" in against or against.endswith(".whl")


def from_host(answer: Mapping[str, Any]) -> PatchDiff:
    """The agent's answer to `diag.diff`."""
    files = [
        FileDiff(item["file"], item["against"], base64.b64decode(item["diff"])) for item in answer["files"]
    ]
    return PatchDiff(files, answer["unknown"])


def local(patch: Definition, against: str) -> PatchDiff:
    """Against a wheel file, or a folder with the package at its top, in python/ or in src/; no host is asked.

    Composed and compiled by this Python. Raises UsageError when it cannot be read or the patch does not fit.
    """
    path, definition = Path(against), patch.to_json()
    names = sorted({target.file for target in patch.targets})
    found, prefix, version = _from_folder(path, names) if path.is_dir() else _from_wheel(path, names)
    if not found:
        raise _misfit(
            definition,
            version,
            f"{against} has none of the files that {patch.name} edits: {', '.join(names)}",
            "name a wheel of sglang, or the folder of a checkout",
        )
    jobs = [
        Job(file, content, job_of(file, content, [definition])["patches"]) for file, content in found.items()
    ]
    try:
        answers = compose(jobs, version)
    except Refused as refused:
        expects = f"`ddtool diag show {patch.name}` prints what the patch expects"
        raise _misfit(definition, version, str(refused), expects) from refused
    files = [
        FileDiff(prefix + job.file, against, patch_of(job.content, one.content, prefix + job.file))
        for job, one in zip(jobs, answers, strict=True)
        if one.patches
    ]
    return PatchDiff(files, [item for one in answers for item in one.unknown])


def _misfit(definition: dict[str, Any], version: str | None, message: str, hint: str) -> UsageError:
    """Why it does not fit: the patch may know that this release has not what it edits, as a host would say."""
    try:
        refuse_absent("sglang", version, [definition])
    except AgentUsage as absent:
        return UsageError(absent.message, hint=absent.hint)
    return UsageError(message, hint=hint)


def _from_folder(folder: Path, names: list[str]) -> tuple[dict[str, bytes], str, None]:
    for prefix in INSIDE:
        found = {name: path.read_bytes() for name in names if (path := folder / prefix / name).is_file()}
        if found:
            return found, prefix, None
    return {}, "", None


def _from_wheel(path: Path, names: list[str]) -> tuple[dict[str, bytes], str, str | None]:
    named = WHEEL.match(path.name)
    try:
        with zipfile.ZipFile(path) as archive:
            inside = set(archive.namelist())
            found = {name: archive.read(name) for name in names if name in inside}
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path} cannot be read as a wheel: {error}",
            hint="name a wheel of sglang, or the folder of a checkout",
        ) from error
    return found, "", named["version"] if named else None
