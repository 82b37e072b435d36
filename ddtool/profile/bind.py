"""Which host a profile goes to, and which profile is current. Both are the operator's, never a profile's.

Bindings lie in the user's configuration folder, the current profile in the state folder, each 0600.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import platformdirs

from ddtool.errors import UsageError

DEFAULT_BINDINGS = {"demo": "sandbox:demo"}


def bindings_file() -> Path:
    return platformdirs.user_config_path("ddtool") / "hosts.yaml"


def current_file() -> Path:
    return platformdirs.user_state_path("ddtool") / "current"


def bindings() -> dict[str, str]:
    """Profile name → host, the operator's bindings over the built-in one of the demo."""
    import yaml

    path = bindings_file()
    if not path.exists():
        return dict(DEFAULT_BINDINGS)
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and isinstance(host, str) for key, host in stored.items()
    ):
        raise UsageError(f"{path} is not a list of `profile: host` lines", hint=f"repair or remove {path}")
    return {**DEFAULT_BINDINGS, **stored}


def bind(profile: str, host: str) -> None:
    """Remember `host` as the one that `profile` goes to. UsageError for what ssh would read as an option."""
    import yaml

    _write(bindings_file(), yaml.safe_dump({**bindings(), profile: _checked(host)}))


def host_for(profile: str, host_option: str | None, environ: Mapping[str, str]) -> str:
    """The host of the profile named: `--host`, then DDTOOL_HOST, then its binding. UsageError without any."""
    host = host_option or environ.get("DDTOOL_HOST") or bindings().get(profile)
    if host is None:
        raise UsageError(
            f"no host for the profile {profile}",
            why="profiles hold no host: one profile runs on any machine of its kind",
            hint=f"ddtool profile bind {profile} HOST   (or --host HOST, or DDTOOL_HOST)",
        )
    return _checked(host)


def current(option: str | None, environ: Mapping[str, str]) -> str:
    """The profile that a verb without argument means: `-p`, then DDTOOL_PROFILE, then the last deployed."""
    named = option or environ.get("DDTOOL_PROFILE")
    if named:
        return named
    try:
        stored = current_file().read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        stored = ""
    if not stored:
        raise UsageError(
            "no profile named, and none is current",
            why="`ddtool deploy PROFILE` makes its profile the current one",
            hint="name one with -p PROFILE or DDTOOL_PROFILE; `ddtool profile list` shows them",
        )
    return stored


def set_current(profile: str) -> None:
    """Make `profile` (a name, or the path it was loaded from) the one that later verbs mean."""
    path, content = current_file(), profile + "\n"
    with suppress(OSError):
        if path.read_text(encoding="utf-8") == content:
            return
    _write(path, content)


def _checked(host: str) -> str:
    if not host or host.startswith("-") or any(char.isspace() or ord(char) < 32 for char in host):
        raise UsageError(f"not a host: {host!r}", hint="a name that `ssh NAME` would reach")
    return host


def _write(path: Path, content: str) -> None:
    """Atomically, readable by the operator only."""
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
