"""What this machine must have before a sandbox can boot; every refusal names the ways out."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ddtool.errors import PreflightError
from ddtool.sandbox import cgroups, kernel

WAYS_OUT = (
    "run it with sudo on Linux, or in a privileged container (docker run --privileged), "
    "or use a real Debian 12 machine or VM with root: ddtool deploy PROFILE --host NAME"
)
_CAP_SYS_ADMIN = 21
_PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}


def check() -> None:
    """Raises PreflightError when this machine cannot boot a sandbox."""
    if sys.platform != "linux":
        raise PreflightError("a sandbox needs Linux", why=f"this is {platform.system()}", hint=WAYS_OUT)
    if platform.machine() not in kernel.SUPPORTED:
        why = f"this is {platform.machine()}; known are {', '.join(kernel.SUPPORTED)}"
        raise PreflightError("a sandbox cannot boot on this processor", why=why, hint=WAYS_OUT)
    if os.geteuid() != 0:
        why = "it makes namespaces, mounts and cgroups"
        raise PreflightError("a sandbox needs root", why=why, hint=WAYS_OUT)
    if not _has_capability(_CAP_SYS_ADMIN):
        why = "this process is root without CAP_SYS_ADMIN: an unprivileged container?"
        raise PreflightError("a sandbox needs CAP_SYS_ADMIN", why=why, hint=WAYS_OUT)
    if not _has_overlay():
        why = "/proc/filesystems lists no overlay, and modprobe overlay failed"
        raise PreflightError("a sandbox needs overlayfs", why=why, hint=WAYS_OUT)
    cgroups.layout(cgroups.hierarchies())
    need_tools("ssh-keygen", "nsenter")


def need_tools(*tools: str) -> None:
    """Raises PreflightError naming the packages of all `tools` that are missing."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise PreflightError(f"missing on this machine: {', '.join(missing)}", hint=apt_get(missing))


def apt_get(tools: Sequence[str]) -> str:
    packages = sorted({_PACKAGES[tool] for tool in tools})
    return f"apt-get install -y --no-install-recommends {' '.join(packages)}"


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _has_overlay() -> bool:
    if "overlay" in Path("/proc/filesystems").read_text().split():
        return True
    if not shutil.which("modprobe"):
        return False
    return subprocess.run(["modprobe", "-q", "overlay"], check=False).returncode == 0
