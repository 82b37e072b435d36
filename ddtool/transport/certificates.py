"""OpenSSH certificates (PROTOCOL.certkeys) of users and of hosts: what one says, and what is wrong with it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

from ddtool.transport.knownhosts import PublicKey, pattern, public_key
from ddtool.transport.text import printable

SUFFIX = "-cert-v01@openssh.com"
FOR_EVER = 2**64 - 1


class Unreadable(Exception):
    """Not a certificate, of a kind that cannot be checked here, or not signed by the authority that it names."""


@dataclass(frozen=True)
class Certificate:
    key: PublicKey  # the certified key without its certificate
    authority: PublicKey
    signed_with: str  # the signature's algorithm, such as rsa-sha2-512
    of_host: bool
    identity: str  # what the authority called it: its key id
    principals: tuple[str, ...]  # host names, or logins; as they are, not yet fit to be shown
    valid_after: int  # Unix seconds
    valid_before: int  # Unix seconds, or FOR_EVER
    critical_options: tuple[str, ...]

    def __str__(self) -> str:
        return printable(f'certificate "{self.identity}" for {self.names}, {self.validity}')

    @property
    def names(self) -> str:
        return printable(", ".join(self.principals)) or "no name"

    @property
    def validity(self) -> str:
        end = "for ever" if self.valid_before == FOR_EVER else f"until {when(self.valid_before)}"
        return f"valid {end}" if not self.valid_after else f"valid from {when(self.valid_after)} {end}"

    def out_of_date(self, now: float) -> str | None:
        """`has expired` or `is not valid yet`, with the time; None while it is valid."""
        if now < self.valid_after:
            return f"is not valid before {when(self.valid_after)}"
        return f"has expired on {when(self.valid_before)}" if now >= self.valid_before else None


def read(public: PublicKey) -> Certificate:
    """The certificate in a public key of type `…-cert-v01@openssh.com`. Raises Unreadable, also for a bad signature."""
    try:
        read = load_ssh_public_identity(f"{public.type} {base64.b64encode(public.blob).decode()}".encode())
        if not isinstance(read, SSHCertificate):
            raise Unreadable("not a certificate")
        read.verify_cert_signature()
        key, authority = _plain(read.public_key()), _plain(read.signature_key())
    except InvalidSignature as error:
        raise Unreadable("its signature is wrong") from error
    except (ValueError, UnsupportedAlgorithm, NotImplementedError) as error:
        raise Unreadable(str(error)) from error
    return Certificate(
        key=key,
        authority=authority,
        signed_with=_signed_with(public.blob, authority),
        of_host=read.type == SSHCertificateType.HOST,
        identity=read.key_id.decode(errors="replace"),
        principals=tuple(name.decode(errors="replace") for name in read.valid_principals),
        valid_after=read.valid_after,
        valid_before=read.valid_before,
        critical_options=tuple(name.decode(errors="replace") for name in read.critical_options),
    )


def host_problem(
    certificate: Certificate, name: str, now: float, signatures: Sequence[str] | None
) -> str | None:
    """Why a host's certificate proves nothing about `name`, or None. `signatures`: CASignatureAlgorithms.

    Its authority is not judged here. As in OpenSSH since 10.3, a principal may have * and ? in it, and a certificate
    for no principal is for no host.
    """
    if not certificate.of_host:
        return "is a user's certificate"
    if outdated := certificate.out_of_date(now):
        return outdated
    if not any(pattern(principal).fullmatch(name) for principal in certificate.principals):
        return f"is for {certificate.names}, not for {name}"
    if certificate.critical_options:
        option = printable(certificate.critical_options[0])
        return f"has the critical option {option}, and none is known for hosts"
    if signatures is not None and certificate.signed_with not in signatures:
        return f"is signed with {certificate.signed_with}, which CASignatureAlgorithms does not allow"
    return None


def user_problem(certificate: Certificate, login: str, now: float) -> str | None:
    """Why a host will most likely refuse a user's certificate, or None. The host decides; it may map names."""
    if certificate.of_host:
        return "is a host's certificate"
    if outdated := certificate.out_of_date(now):
        return outdated
    if certificate.principals and login not in certificate.principals:
        return f"is for {certificate.names}, not for {login}"
    return None


def when(unix: int) -> str:
    try:
        return datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"Unix time {unix}"


def _plain(key: object) -> PublicKey:
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)  # type: ignore[attr-defined]
    found = public_key(line.decode().split()[:2])
    if not found:
        raise Unreadable("its key cannot be read")
    return found


def _signed_with(blob: bytes, authority: PublicKey) -> str:
    """The first string of the signature, which follows the authority's key at the end of the certificate."""
    signature = blob.rpartition(authority.blob)[2][4:]
    size = int.from_bytes(signature[:4], "big")
    return signature[4 : 4 + size].decode("ascii", "replace")
