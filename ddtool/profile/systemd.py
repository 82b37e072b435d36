"""Quoting for unit files and environment files: one syntax for each, and neither is the shell's."""

from __future__ import annotations

import re
from collections.abc import Mapping

_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


def _checked(value: str) -> str:
    if _UNSAFE.search(value):
        raise ValueError("a systemd setting cannot hold a line break or control character")
    return value


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def text(value: str) -> str:
    """Free text, such as a Description: `%` has a meaning, and a last backslash would join the next line."""
    return _checked(value).replace("%", "%%").rstrip("\\")


def path(value: str) -> str:
    """A setting of one unquoted path. Blanks, quotes, backslashes are refused: settings differ there."""
    if re.search(r"[\s\"'\\]", value):
        raise ValueError(f"a path in a unit cannot hold blanks, quotes or backslashes: {value!r}")
    return _checked(value).replace("%", "%%")


def command(argv: list[str]) -> str:
    """An ExecStart line whose words reach the program as they are: no specifier, no variable, no splitting.

    The first word must be an absolute path: systemd reads `-`, `@`, `:`, `+` and `!` before it as switches.
    """
    if not argv or not argv[0].startswith("/"):
        raise ValueError("the program must be an absolute path")
    return " ".join([path(argv[0]), *(_word(argument) for argument in argv[1:])])


def _word(argument: str) -> str:
    escaped = _checked(argument).replace("%", "%%").replace("$", "$$")
    plain = re.fullmatch(r"[A-Za-z0-9_./:=,@%+-]+", escaped) is not None
    return escaped if plain else _quoted(escaped)


def assignment(name: str, value: str) -> str:
    """One value of `Environment=`. `$` has no meaning there, `%` has."""
    return _quoted(f"{name}={_checked(value)}".replace("%", "%%"))


def environment_file(values: Mapping[str, str]) -> str:
    """Text of an EnvironmentFile, where nothing is expanded; quotes, backslash, `` ` ``, `$` are escaped."""
    lines = []
    for name, value in values.items():
        escaped = re.sub(r'(["\\`$])', r"\\\1", _checked(value))
        lines.append(f'{name}="{escaped}"\n')
    return "".join(lines)
