"""ssh_config's %-tokens, ~ and ${NAME}, where `ssh -G` leaves them as they are."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tokens:
    """ssh_config's %-tokens. `ssh -G` leaves them in identity files, certificates, proxies (OpenSSH 9.2)."""

    name: str
    hostname: str
    port: int
    user: str
    alias: str | None
    jump: str | None
    environ: Mapping[str, str]
    connection: str = ""  # ssh's own hash of the connection: what goes into it differs between releases

    def expand(self, text: str, more: Mapping[str, str] | None = None) -> str:
        """`more`: tokens that only one option has."""
        values = {**self._values(), **(more or {})}
        return re.sub(r"%(.)", lambda match: values.get(match[1], match[0]), text)

    def path(self, text: str) -> str:
        """`text` with ~, %-tokens and ${NAME} expanded."""
        home = pwd.getpwuid(os.getuid()).pw_dir  # as ssh does: HOME is not asked
        text = re.sub(r"\$\{(\w+)\}", lambda match: self.environ.get(match[1], match[0]), self.expand(text))
        if text == "~" or text.startswith("~/"):
            return home + text[1:]
        return os.path.expanduser(text)  # noqa: PTH111  ~user, which Path.expanduser refuses when there is no such user

    def _values(self) -> dict[str, str]:
        local = pwd.getpwuid(os.getuid())
        return {
            "%": "%",
            "C": self.connection,
            "d": local.pw_dir,
            "h": self.hostname,
            "i": str(os.getuid()),
            "j": self.jump or "",
            "k": self.alias or self.name,
            "L": socket.gethostname().split(".")[0],
            "l": socket.gethostname(),
            "n": re.sub(r"^ssh://|:\d+/?$", "", self.name).rpartition("@")[2],
            "p": str(self.port),
            "r": self.user,
            "u": local.pw_name,
        }
