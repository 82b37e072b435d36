"""Profiles: what to run, apart from the host. Nothing here touches a host, or reads a secret before apply."""

from ddtool.profile.loading import available, load
from ddtool.profile.schema import Card, Profile, resolve_secrets
from ddtool.profile.secrets import SecretText

__all__ = ["Card", "Profile", "SecretText", "available", "load", "resolve_secrets"]
