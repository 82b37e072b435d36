"""Profiles: what to run, apart from the host. Nothing here touches a host, or reads a secret before apply.

The names below load the schema when they are first asked for: pydantic builds its classes while a host answers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddtool.profile.loading import load
    from ddtool.profile.schema import Card, Profile, resolve_secrets
    from ddtool.profile.search import available
    from ddtool.profile.secrets import SecretText

__all__ = ["Card", "Profile", "SecretText", "available", "load", "resolve_secrets"]

_MODULES = {
    "Card": "schema",
    "Profile": "schema",
    "SecretText": "secrets",
    "available": "search",
    "load": "loading",
    "resolve_secrets": "schema",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
