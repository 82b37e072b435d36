"""Errors that travel to the operator as `{class, message, hint}`; ddtool.errors has a class of each name."""

from __future__ import annotations

from typing import Optional


class AgentError(Exception):
    name = "DdtoolError"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(AgentError):
    name = "UsageError"


class RequestTimeout(AgentError):
    name = "RequestTimeout"


class PreflightError(AgentError):
    name = "PreflightError"


class Locked(AgentError):
    name = "Locked"


class Drift(AgentError):
    name = "Drift"


class Unhealthy(AgentError):
    name = "Unhealthy"
