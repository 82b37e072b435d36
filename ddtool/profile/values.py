"""Types of single values in a profile: what each takes, and what it is told when it does not."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from ddtool.profile.secrets import SecretText, parse_text

Plain = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")]
AbsolutePath = Annotated[Plain, Field(pattern=r"^/")]
Text = Annotated[
    str | SecretText,
    BeforeValidator(lambda value: parse_text(value) if isinstance(value, str) else value),
    PlainSerializer(str, return_type=str),
]


def _environment_text(value: Any) -> Any:
    """YAML's 1 and 0.5 are meant as text here. Its `true` is not: programs differ on true, True and 1."""
    if isinstance(value, bool):
        raise ValueError('write it in quotes, as the program wants to read it: "1", "true" or "True"')
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError("an environment value cannot hold a line break or control character")
    return value


EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
EnvValue = Annotated[Text, BeforeValidator(_environment_text)]
FlagName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


def _flag_value(value: Any) -> Any:
    """What SGLang's config file can carry. Secrets only as whole texts: lists and mappings hold none."""
    if isinstance(value, str):
        return parse_text(value)
    if isinstance(value, bool | int | float | SecretText):
        return value
    if "${" in str(value):
        raise ValueError("${env:NAME} stands in a flag's text, not inside a list or mapping")
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return value
    raise ValueError("a flag takes a switch, a number, text, a list of these, or a mapping (sent as JSON)")


def _plain_flag_value(value: Any) -> Any:
    return str(value) if isinstance(value, SecretText) else value


FlagValue = Annotated[Any, BeforeValidator(_flag_value), PlainSerializer(_plain_flag_value)]
