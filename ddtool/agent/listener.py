"""Whose a listening port is. While a service is down any local user may listen in its place, and wait for its key."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple, Union

from . import unit

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
LISTENS = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def check(sock: socket.socket, unit_name: str) -> None:
    """OSError unless the other end is listened for by root (us), or by the user that the unit runs as.

    The listening socket is asked for, not the connection: one that waits to be accepted has no owner yet.
    """
    address, port = sock.getpeername()[:2]
    found = owners(address.partition("%")[0], port)
    strangers = found - {os.geteuid()}
    if strangers:
        strangers -= users(unit_name)
    if strangers or not found:
        who = ", ".join(f"uid {uid}" for uid in sorted(strangers)) or "nobody known"
        raise OSError(f"port {port} belongs to {who}, not to {unit_name}: its API key was not sent")


def owners(address: str, port: int) -> Set[int]:
    """The uids that listen on exactly this address; where nobody does, those that listen on all addresses."""
    wanted = _plain(ipaddress.ip_address(address))
    by_address: Dict[Address, Set[int]] = {}
    for table in TABLES:
        for local, uid in _listening(table, port):
            by_address.setdefault(local, set()).add(uid)
    if wanted in by_address:
        return by_address[wanted]
    return {uid for local, uids in by_address.items() if int(local) == 0 for uid in uids}


def users(unit_name: str) -> Set[int]:
    """Whom the unit's processes run as; nobody while it does not run."""
    found = set()
    for process in unit.processes(unit_name) if unit.has_systemd() else ():
        try:
            found.add(Path(f"/proc/{process.pid}").stat().st_uid)
        except OSError:
            continue
    return found


def _listening(table: str, port: int) -> Iterator[Tuple[Address, int]]:
    try:
        rows = Path(table).read_text().splitlines()[1:]
    except OSError:
        return
    for row in rows:
        fields: List[str] = row.split()
        local, _, number = fields[1].partition(":")
        if fields[3] == LISTENS and int(number, 16) == port:
            yield _address(local), int(fields[7])


def _address(text: str) -> Address:
    """The kernel prints addresses as 32-bit words in the machine's own byte order."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return _plain(ipaddress.ip_address(packed))


def _plain(address: Address) -> Address:
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
