"""The sandbox's disk: a tmpfs over its read-only layers, seen by no process but its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddtool.sandbox import guest, kernel, sshfiles
from ddtool.sandbox.records import Options


def scratch(options: Options) -> Path:
    """The tmpfs: the writable layer lives in it, so `disk` bounds what the sandbox can write."""
    return options.folder / "scratch"


def root(options: Options) -> Path:
    return scratch(options) / "root"


def mount(options: Options) -> None:
    """Mount the disk in a mount namespace of the calling process's own, and make it this sandbox's."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    folder = scratch(options)
    folder.mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(folder), "tmpfs", kernel.MS_NODEV, f"mode=755,size={options.disk}")
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(mode=0o755)
    layers = overlay_data(options.lower, folder / "upper", folder / "work")
    kernel.mount("overlay", str(root(options)), "overlay", 0, layers)
    _personalize(root(options), options)


def unmount(options: Options) -> None:
    """Else the folders could not be removed: they are busy while mounted in any namespace."""
    for path in (root(options), scratch(options)):
        with suppress(OSError):
            kernel.unmount(str(path))


def overlay_data(lower: Sequence[str], upper: Path, work: Path) -> str:
    """Mount options of the overlay; `lower` from the lowest up."""
    layers = ":".join(_escaped(layer) for layer in reversed(lower))
    return f"lowerdir={layers},upperdir={_escaped(str(upper))},workdir={_escaped(str(work))}"


def _escaped(path: str) -> str:
    for character in "\\:,":
        path = path.replace(character, "\\" + character)
    return path


def _personalize(root: Path, options: Options) -> None:
    etc = root / "etc"
    _write(etc / "machine-id", uuid.uuid4().hex + "\n")
    _write(etc / "hostname", options.name + "\n")
    _write(etc / "hosts", f"127.0.0.1 localhost {options.name}\n::1 localhost\n")
    _write(etc / "resolv.conf", "")
    _write(etc / "ssh" / sshfiles.HOST_KEY, (options.folder / sshfiles.HOST_KEY).read_text(), 0o600)
    public_key = (options.folder / "id_ed25519.pub").read_text()
    for home in (root / "root", root / "home" / guest.USER):
        owner = home.stat()
        folder = home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        _write(folder / "authorized_keys", public_key, 0o600)
        for path in (folder, folder / "authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
