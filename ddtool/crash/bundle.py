"""An evidence bundle on the operator's machine: one .tar.gz with `manifest.json` (`ddtool.evidence/1`) and its files.

Members are read in memory and never unpacked: a bundle may come from anybody.
"""

from __future__ import annotations

import io
import json
import re
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.errors import DdtoolError, UsageError

if TYPE_CHECKING:
    import tarfile  # takes 8 ms to import, and most logs are no bundle

SCHEMA = "ddtool.evidence/1"
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
INSTALLATION = "installation.json"
PROCESSES = "processes.txt"
PROFILE = "profile.yaml"
VERDICT = "verdict.json"
ALL_BYTES = 512 << 20  # unpacked; ours have at most a fifth of that
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")

Json = dict[str, Any]


@dataclass(frozen=True)
class Bundle:
    manifest: Json
    files: dict[str, bytes]

    def json(self, name: str) -> Json:
        """A JSON file of the bundle, {} when it is not there or not whole."""
        try:
            data = json.loads(self.files.get(name, b"{}"))
        except (ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def with_files(self, files: dict[str, bytes]) -> Bundle:
        names = [*(name for name in self.manifest["files"] if name not in files), *files]
        return replace(self, manifest={**self.manifest, "files": names}, files={**self.files, **files})


def is_bundle(path: Path) -> bool:
    """By its first bytes: a tar in gzip, or a folder with a manifest in it."""
    if path.is_dir():
        return (path / MANIFEST).is_file()
    try:
        with path.open("rb") as file:
            start = zlib.decompressobj(wbits=31).decompress(file.read(1024), 512)
    except (OSError, zlib.error):
        return False
    return start[257:262] == b"ustar"


def read(path: Path) -> Bundle:
    """Raises UsageError when it is not a bundle that this ddtool reads."""
    if path.is_dir():
        found = {item.name: item.read_bytes() for item in path.iterdir() if item.is_file()}
        return of_files(found, str(path))
    return unpack(path.read_bytes(), str(path))


def unpack(data: bytes, what: str = "the bundle") -> Bundle:
    """Unpacked as a whole first, with a limit: a small archive can hold terabytes, in a member or in its headers."""
    import gzip
    import tarfile

    try:
        raw = gzip.GzipFile(fileobj=io.BytesIO(data)).read(ALL_BYTES + 1)
        if len(raw) > ALL_BYTES:
            raise UsageError(
                f"{what} holds more than {ALL_BYTES >> 20} MiB", hint="ddtool made no such bundle"
            )
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
            files = {name_in(member): content(tar, member) for member in tar if member.isfile()}
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise UsageError(f"{what} is damaged: {error}", hint="fetch it again: ddtool crash bundle") from error
    return of_files({name: data for name, data in files.items() if FILE_NAME.fullmatch(name)}, what)


def name_in(member: tarfile.TarInfo) -> str:
    return member.name.rpartition("/")[2]


def content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read()


def of_files(files: dict[str, bytes], what: str) -> Bundle:
    try:
        manifest = json.loads(files.pop(MANIFEST))
        schema = manifest["schema"]
        manifest["unix"] = float(manifest.get("unix", 0))
        time.gmtime(manifest["unix"])  # a moment that there is
        listed = list(map(str, manifest.get("files", [])))
    except (KeyError, ValueError, TypeError, OverflowError, OSError, RecursionError) as error:
        raise UsageError(
            f"{what} is no evidence bundle: it has no readable {MANIFEST}", hint="give the log itself"
        ) from error
    if schema != SCHEMA:
        raise UsageError(
            f"{what} is {schema}; this ddtool reads {SCHEMA}", hint="use the ddtool that made it"
        )
    return Bundle({**manifest, "files": listed}, files)


def pack(bundle: Bundle) -> bytes:
    """One folder named after the run, the manifest first."""
    import gzip
    import tarfile

    folder = name_of(bundle)
    files = {MANIFEST: json.dumps(bundle.manifest, indent=1).encode(), **bundle.files}
    raw = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode = len(data), 0o600
            member.mtime = int(bundle.manifest.get("unix", 0))
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def write(bundle: Bundle, path: Path) -> None:
    """A new file that only its owner reads. Raises DdtoolError when it is there already."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(pack(bundle))
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", hint="--out FILE names another") from error
    except OSError as error:
        raise DdtoolError(
            f"cannot write {path}: {error.strerror}", hint="--out FILE names another"
        ) from error


def name_of(bundle: Bundle) -> str:
    """`ddtool-UNIT-20251129T190102-4f1c9a2b`: unit, end of the run in UTC, its invocation. A file's name, whatever
    the host says these are."""
    manifest = bundle.manifest
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(manifest.get("unix", 0)))
    name = f"ddtool-{manifest.get('unit')}-{moment}-{str(manifest.get('invocation'))[:8]}"
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", name)[:200]
