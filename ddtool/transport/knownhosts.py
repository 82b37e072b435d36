"""known_hosts, read as OpenSSH reads it (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). Nothing is ever written.

A line that cannot be read is skipped and never hides another one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class PublicKey:
    type: str  # ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256, …
    blob: bytes  # the public key in ssh's wire form

    @property
    def fingerprint(self) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @property
    def family(self) -> str:
        """ECDSA curves count as one type, as in OpenSSH: another curve is a changed key, not a new one."""
        return "ecdsa" if self.type.startswith("ecdsa-") else self.type

    @property
    def rsa_bits(self) -> int | None:
        """The length of an RSA key's modulus; None for another type."""
        if self.type != "ssh-rsa":
            return None
        _, rest = _string(self.blob)
        _, rest = _string(rest)  # the exponent
        return int.from_bytes(_string(rest)[0], "big").bit_length()

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"


@dataclass(frozen=True)
class Entry:
    path: str
    line: int  # 1-based
    marker: str  # "", "@cert-authority" or "@revoked"
    hosts: str  # patterns with commas between, or one hashed name
    key: PublicKey

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def covers(self, name: str) -> bool:
        """Whether this line speaks about `name`: a host name in lower case, or [host]:port."""
        if self.hosts.startswith("|"):
            return _hashed_matches(self.hosts, name)
        matched = False
        for wanted in self.hosts.lower().split(","):
            if wanted.startswith("!"):
                if pattern(wanted[1:]).fullmatch(name):
                    return False
            elif pattern(wanted).fullmatch(name):
                matched = True
        return matched


@dataclass(frozen=True)
class Verdict:
    """`state`: trusted · changed (another key of this type is known) · revoked · unknown.

    `entries`: the lines it rests on; for unknown, the host's keys of other types.
    """

    state: str
    entries: tuple[Entry, ...] = ()


def parse(text: str, path: str) -> list[Entry]:
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@cert-authority", "@revoked"):
            continue
        key = public_key(fields[1:3])
        if key:
            entries.append(Entry(path, number, marker, fields[0], key))
    return entries


def load(paths: Iterable[str]) -> list[Entry]:
    """Every entry of the files that can be read, in order. ssh skips the others without a word as well."""
    entries: list[Entry] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        entries += parse(text, path)
    return entries


def public_keys(path: str) -> list[PublicKey]:
    """The keys of a file with one public key a line. Raises OSError, UnicodeDecodeError (a binary file)."""
    keys = []
    for line in Path(path).read_text(encoding="utf-8").split("\n"):
        key = public_key(line.split()[:2])
        if key:
            keys.append(key)
    return keys


def public_key(fields: Sequence[str]) -> PublicKey | None:
    """`[type, base64]` as a key, or None when it is not one."""
    if len(fields) != 2:
        return None
    try:
        blob = base64.b64decode(fields[1], validate=True)
    except (binascii.Error, ValueError):
        return None
    return PublicKey(fields[0], blob) if _wire_type(blob) == fields[0] else None


def lookup_names(hostname: str, port: int, alias: str | None) -> tuple[str, ...]:
    """Names to look up, the decisive one first. A key known for the bare name is also good on another port."""
    if alias:
        return (alias.lower(),)
    host = hostname.lower()
    return (host,) if port == 22 else (f"[{host}]:{port}", host)


def check(entries: Sequence[Entry], names: Sequence[str], key: PublicKey) -> Verdict:
    """Judge the key that a host has shown. A key that is revoked anywhere for the host is never trusted."""
    revoked = revocations(entries, names, key)
    if revoked:
        return Verdict("revoked", revoked)
    plain = [entry for entry in covering(entries, names) if not entry.marker]
    same = tuple(entry for entry in plain if entry.key == key)
    contradicting = tuple(
        entry
        for entry in plain
        if entry.covers(names[0]) and entry.key.family == key.family and entry.key != key
    )
    decisive = tuple(entry for entry in same if entry.covers(names[0]))
    if decisive:
        return Verdict("trusted", decisive)
    if contradicting:
        return Verdict("changed", contradicting)
    return Verdict("trusted", same) if same else Verdict("unknown", tuple(plain))


def known_types(entries: Sequence[Entry], names: Sequence[str]) -> tuple[str, ...]:
    """Types of the keys known for the host under the first name that has any."""
    for name in names:
        types = tuple(
            dict.fromkeys(entry.key.type for entry in entries if not entry.marker and entry.covers(name))
        )
        if types:
            return types
    return ()


def authorities(entries: Sequence[Entry], names: Sequence[str]) -> tuple[Entry, ...]:
    """The lines that trust an authority to certify the host's key."""
    return tuple(entry for entry in covering(entries, names) if entry.marker == "@cert-authority")


def revocations(entries: Sequence[Entry], names: Sequence[str], key: PublicKey) -> tuple[Entry, ...]:
    """The lines that revoke a key, the host's own or an authority's, for the host."""
    return tuple(
        entry for entry in covering(entries, names) if entry.marker == "@revoked" and entry.key == key
    )


def covering(entries: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    """The lines that speak about the host under any of its names."""
    return [entry for entry in entries if any(entry.covers(name) for name in names)]


def _hashed_matches(hosts: str, name: str) -> bool:
    parts = hosts.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt, digest = base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)


@lru_cache(maxsize=4096)
def pattern(text: str) -> re.Pattern[str]:
    """ssh's patterns know * and ? and nothing else; the brackets of [host]:port stand for themselves."""
    text = re.sub(r"\*+", "*", text)  # runs of stars mean the same and would cost exponential time
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text), re.DOTALL)


def _wire_type(blob: bytes) -> str:
    return _string(blob)[0].decode("ascii", "replace")


def _string(data: bytes) -> tuple[bytes, bytes]:
    """The string at the beginning of ssh's wire form, and what follows it."""
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]
