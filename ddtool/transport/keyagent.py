"""The ssh agent at a socket: its keys and certificates, and their signatures. It is asked here, never forwarded."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from paramiko import SSHException
from paramiko.agent import AgentKey, AgentSSH
from paramiko.pkey import PublicBlob

from ddtool.transport import certificates
from ddtool.transport.knownhosts import PublicKey

if TYPE_CHECKING:
    from ddtool.transport.sshconfig import SshConfig


class SshAgent(AgentSSH):
    """A connection to the agent at a socket path; paramiko's own Agent has no IdentityAgent and no timeout."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(path)
            # As paramiko's own Agent does it; the type stubs leave the method out.
            self._connect(self._socket)  # type: ignore[attr-defined]
        except BaseException:
            self._socket.close()
            raise

    def held(self) -> list[HeldKey]:
        return [HeldKey(key) for key in self.get_keys()]

    def close(self) -> None:
        self._socket.close()


class HeldKey(AgentKey):
    """A key or a certificate that the agent holds. The agent signs with what it was asked for by its exact bytes."""

    def __init__(self, key: AgentKey, certificate: PublicKey | None = None) -> None:
        super().__init__(key.agent, key.blob, key.comment)
        self.held = PublicKey(self.name, self.blob)
        self.certificate = self.held if self.name.endswith(certificates.SUFFIX) else certificate
        if self.certificate:
            self.public_blob = PublicBlob(self.certificate.type, self.certificate.blob)  # type: ignore[assignment]

    def asbytes(self) -> bytes:
        return self.blob

    def certified_by(self, certificate: PublicKey) -> HeldKey:
        """The same private half, offered with a certificate from a file."""
        return HeldKey(self, certificate)


def open_agent(config: SshConfig, timeout_s: float) -> SshAgent | None:
    """The configured agent, or None without one. Raises OSError, SSHException when it does not answer."""
    return SshAgent(config.identity_agent, timeout_s) if config.identity_agent else None


AgentFailure = (OSError, SSHException)
