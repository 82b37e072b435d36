"""Secrets in profiles: only references, `${env:NAME}`, and never their values before apply.

A reference stays a `SecretText` from the YAML file to the moment the release is written. Whatever prints a
profile (plan, `profile show`, a traceback) prints the reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddtool.errors import ProfileError

MIN_SECRET_LENGTH = 8  # shorter values would redact half of every log line

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)$")


@dataclass(frozen=True)
class SecretText:
    """A string with at least one `${env:NAME}` in it. `str()` gives the reference, never the value."""

    template: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(_REFERENCE.findall(self.template))

    def resolve(self, values: Mapping[str, str]) -> str:
        """The text with every reference replaced; `values` is what `resolve_secrets` returned."""
        return _REFERENCE.sub(lambda match: values[match.group(1)], self.template)

    def __str__(self) -> str:
        return self.template


def parse_text(text: str) -> str | SecretText:
    """`text` as it is, or a SecretText when it holds references. ValueError for any other `${…}`.

    `${NAME}` would otherwise reach the host unexpanded: neither SGLang's config file nor systemd expands it.
    """
    rest = _REFERENCE.sub("", text)
    if "${" in rest:
        raise ValueError(
            "only ${env:NAME} is replaced in a profile; any other ${…} would reach the host as it is"
        )
    return SecretText(text) if rest != text else text


def names_a_secret(key: str) -> bool:
    """Whether a flag or variable of this name holds a secret: its value has no place in a profile."""
    return _SECRET_NAME.search(key.replace("-", "_").upper()) is not None


def lookup(names: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The value of each name in `environ`. ProfileError, without the value, for a missing or unusable one."""
    values = {}
    for name in names:
        value = environ.get(name)
        if value is None:
            raise ProfileError(
                f"the profile needs the environment variable {name}, which is not set",
                why=f"it says ${{env:{name}}}; secrets are read when a deploy is applied",
                hint=f"export {name}=… and run the command again",
            )
        if len(value) < MIN_SECRET_LENGTH:
            raise ProfileError(
                f"the value of {name} is shorter than {MIN_SECRET_LENGTH} characters",
                why="secrets are redacted by value, and a short one would blot out ordinary text",
                hint=f"set {name} to a longer secret",
            )
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise ProfileError(
                f"the value of {name} holds a line break or control character",
                why="systemd's environment file and SGLang's arguments cannot carry one",
                hint=f"check how {name} was exported: a trailing newline is the usual cause",
            )
        values[name] = value
    return values
