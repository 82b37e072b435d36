"""Every error that ddtool reports on purpose. One tree; each class has an exit code.

    DdtoolError                1  failed
    ├── UsageError             2  bad arguments
    │   └── ProfileError       2  a profile that cannot work
    ├── HostError              3  the host cannot be reached, or the link was lost
    │   ├── NameNotResolved, ConnectionRefused, ConnectTimeout, ConnectionLost
    │   ├── HostKeyUnknown, HostKeyChanged, AuthenticationFailed
    │   └── RequestTimeout        the agent did not answer within the request's deadline
    ├── PreflightError         4  this host or machine cannot do it
    │   ├── SudoNeedsPassword
    │   └── PythonMissing
    ├── Locked                 5  another transaction holds the host
    ├── Drift                  6  foreign edits are in the way
    ├── Unhealthy              7  the service is not as wanted, or a deploy was rolled back
    └── VerificationFailed     8  a measured objective or check was not met

An error says what happened (`message`), why (`why`), and what to type next (`hint`).
"""

from __future__ import annotations

from typing import Any


class DdtoolError(Exception):
    exit_code = 1

    def __init__(self, message: str, *, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.why = why
        self.hint = hint
        self.found: dict[str, Any] = {}  # by name: what the command had found before it failed

    def data(self) -> dict[str, Any]:
        """As JSON data, in every `--json` that tells of an error."""
        return {
            **self.found,
            "class": type(self).__name__,
            "message": self.message,
            "why": self.why,
            "hint": self.hint,
            "exit_code": self.exit_code,
        }


class UsageError(DdtoolError):
    exit_code = 2


class ProfileError(UsageError):
    pass


class HostError(DdtoolError):
    exit_code = 3


class NameNotResolved(HostError):
    pass


class ConnectionRefused(HostError):
    pass


class ConnectTimeout(HostError):
    pass


class ConnectionLost(HostError):
    pass


class HostKeyUnknown(HostError):
    pass


class HostKeyChanged(HostError):
    pass


class AuthenticationFailed(HostError):
    pass


class RequestTimeout(HostError):
    pass


class PreflightError(DdtoolError):
    exit_code = 4


class SudoNeedsPassword(PreflightError):
    pass


class PythonMissing(PreflightError):
    pass


class Locked(DdtoolError):
    exit_code = 5


class Drift(DdtoolError):
    exit_code = 6


class Unhealthy(DdtoolError):
    exit_code = 7


class VerificationFailed(DdtoolError):
    exit_code = 8


AGENT_ERRORS: dict[str, type[DdtoolError]] = {
    cls.__name__: cls
    for cls in (DdtoolError, UsageError, RequestTimeout, PreflightError, Locked, Drift, Unhealthy)
}


def from_agent(error: object) -> DdtoolError:
    """The agent's error reply `{class, message, hint}` as the class of the same name here."""
    told = error if isinstance(error, dict) else {}
    cls = AGENT_ERRORS.get(str(told.get("class")), DdtoolError)
    hint = told.get("hint")
    return cls(
        str(told.get("message") or "the agent failed without a message"), hint=str(hint) if hint else None
    )
