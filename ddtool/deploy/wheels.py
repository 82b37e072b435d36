"""The operator's own copy of SGLang's wheel, for bytes that a host has lost."""

from __future__ import annotations

import base64
import zipfile

from ddtool.errors import UsageError
from ddtool.transport.agent import Agent


def wanted_from(wheel: str, agent: Agent, venv: str) -> dict[str, str]:
    """The files that the host lacks the clean bytes of, base64. The host checks them against its own RECORD."""
    wanted = agent.call("baseline.wanted", venv=venv)
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = set(archive.namelist())
            return {name: base64.b64encode(archive.read(name)).decode() for name in wanted if name in inside}
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{wheel} is not a wheel that can be read: {error}", hint="pip download --no-deps sglang==VERSION"
        ) from error
