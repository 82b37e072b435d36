"""An evidence bundle on the operator's machine: one .tar.gz with `manifest.json` (`ddtool.evidence/1`) and its files.

Members are read in memory and never unpacked: a bundle may come from anybody.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddtool.errors import DdtoolError, UsageError

SCHEMA = "ddtool.evidence/1"
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"
INSTALLATION = "installation.json"
PROFILE = "profile.yaml"
VERDICT = "verdict.json"
FILE_BYTES = 64 << 20

Json = dict[str, Any]


@dataclass(frozen=True)
class Bundle:
    manifest: Json
    files: dict[str, bytes]

    def records(self) -> Iterator[Json]:
        """The run's journal as ddtool.record/1; a line that was cut short is left out."""
        for line in self.files.get(JOURNAL, b"").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record

    def json(self, name: str) -> Json:
        """A JSON file of the bundle, {} when it is not there or not whole."""
        try:
            data = json.loads(self.files.get(name, b"{}"))
        except ValueError:
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
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            files = {
                member.name.rpartition("/")[2]: content(tar, member) for member in tar if member.isfile()
            }
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{what} is damaged: {error}", hint="fetch it again: ddtool crash bundle") from error
    return of_files(files, what)


def content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read(FILE_BYTES)


def of_files(files: dict[str, bytes], what: str) -> Bundle:
    try:
        manifest = json.loads(files.pop(MANIFEST))
        schema = manifest["schema"]
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"{what} is no evidence bundle: it has no readable {MANIFEST}", hint="give the log itself"
        ) from error
    if schema != SCHEMA:
        raise UsageError(
            f"{what} is {schema}; this ddtool reads {SCHEMA}", hint="use the ddtool that made it"
        )
    return Bundle({**manifest, "files": list(manifest.get("files", []))}, files)


def pack(bundle: Bundle) -> bytes:
    """One folder named after the run, the manifest first."""
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
    """`ddtool-UNIT-20251129T190102-4f1c9a2b`: unit, end of the run in UTC, its invocation."""
    manifest = bundle.manifest
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(manifest.get("unix", 0)))
    return f"ddtool-{manifest.get('unit')}-{moment}-{str(manifest.get('invocation'))[:8]}"
