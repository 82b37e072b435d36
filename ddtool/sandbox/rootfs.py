"""The sandbox's root file system: Debian 12 by mmdebstrap, built once and cached, then only read."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ddtool.errors import DdtoolError
from ddtool.sandbox import guest, oomshim, preflight
from ddtool.sandbox.records import cache_root, locked

SUITE = "bookworm"
PACKAGES = """
base-files base-passwd bash bsdutils ca-certificates coreutils dash dbus dbus-user-session debianutils
diffutils dpkg findutils grep gzip hostname init-system-helpers iproute2 libc-bin libgomp1 libnss-systemd
libnuma1 libpam-modules libpam-runtime libpam-systemd libstdc++6 login mawk mount ncurses-base
openssh-server passwd perl-base procps python3 python3-venv sed sudo systemd systemd-sysv sysvinit-utils tar
tzdata util-linux
""".split()  # noqa: SIM905 - one word a line would be 40 lines
_UNREAD = ("doc", "man", "info", "locale", "lintian")  # folders of /usr/share that nothing here reads
_APT_OPTIONS = (
    'Acquire::Check-Valid-Until "false"',
    'Acquire::Languages "none"',
    'APT::Install-Recommends "false"',
)


def build(progress: Callable[[str], None]) -> Path:
    """The root file system's folder, built when the cache has none (about half a minute, 200 MiB).

    Raises PreflightError without mmdebstrap, DdtoolError when mmdebstrap fails.
    """
    cache = cache_root()
    target = cache / f"rootfs-{SUITE}-{_key()}"
    with locked(cache / "rootfs.lock"):
        if target.is_dir():
            return target
        preflight.need_tools("mmdebstrap", "unshare")
        progress(f"building the root file system (Debian {SUITE}, {len(PACKAGES)} packages; once)")
        for abandoned in cache.glob("rootfs-build-*"):  # by a build that was killed: the lock is ours
            shutil.rmtree(abandoned)
        folder = Path(tempfile.mkdtemp(prefix="rootfs-build-", dir=cache))
        try:
            root = folder / "root"
            _debootstrap(root)
            guest.configure(root)
            oomshim.install(root)
            root.rename(target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return target


def has_oom_shim(root: Path) -> bool:
    return (root / oomshim.PATH_INSIDE.lstrip("/")).is_file()


def _key() -> str:
    """Changes whenever the sources of the build change."""
    parts = [SUITE, *PACKAGES, oomshim.SOURCE, Path(guest.__file__).read_text(), Path(__file__).read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _debootstrap(root: Path) -> None:
    sources = apt_sources(Path("/etc/apt"))
    result = subprocess.run(
        _command(root, with_sources=bool(sources)),
        input="\n".join(sources) + "\n",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if result.returncode:
        raise DdtoolError(
            "mmdebstrap could not build the sandbox", why=without_addresses(result.stdout)[-2000:]
        )


def _command(root: Path, with_sources: bool) -> list[str]:
    # in a mount namespace of its own: killed half-way, it leaves no /dev or /proc mounted in the tree
    command = ["unshare", "--mount", "--propagation", "private", "mmdebstrap", "--quiet"]
    command += ["--mode=root", "--variant=custom", "--format=directory", "--include=" + ",".join(PACKAGES)]
    command += [f"--aptopt={option}" for option in _APT_OPTIONS]
    command += ["--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in _UNREAD)]
    return [*command, SUITE, str(root), *(["-"] if with_sources else [])]


def apt_sources(apt: Path) -> list[str]:
    """This machine's own sources of SUITE as one-line entries; empty on another distribution or release."""
    lines = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources":
            lines += _deb822(path.read_text())
        elif path.suffix == ".list" and path.exists():
            lines += [line.strip() for line in path.read_text().splitlines() if line.startswith("deb ")]
    return [line for line in lines if re.search(rf"\s{SUITE}(?:-\S+)?\s", line)]


def _deb822(text: str) -> list[str]:
    lines = []
    for stanza in re.split(r"\n\s*\n", text):
        field = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
        if "deb" not in field.get("Types", "").split() or field.get("Enabled", "yes") == "no":
            continue
        keyring = field.get("Signed-By", "")
        signed = f"[signed-by={keyring}] " if keyring.startswith("/") else ""
        for uri in field.get("URIs", "").split():
            for suite in field.get("Suites", "").split():
                lines.append(f"deb {signed}{uri} {suite} {field.get('Components', 'main')}")
    return lines


def without_addresses(text: str) -> str:
    """`text` with every URL replaced: a mirror's address may hold credentials."""
    return re.sub(r"[a-z+]+://[^\s'\"]+", "MIRROR", text)
