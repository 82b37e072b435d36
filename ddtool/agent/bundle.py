"""Requests about crashes: which there were, the files of one as an archive, and what the operator found them to be."""

from __future__ import annotations

import base64
import io
import tarfile
import threading
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from . import collect, crashes, evidence, redact
from .errors import AgentError
from .prompts import records_without_requests, without_requests
from .registry import Context, op

PIECE = 1 << 20
WAIT_S = 0.5

Json = Dict[str, Any]


@op("crash.list")
def crash_list(ctx: Context, unit_name: str) -> Json:
    """`{kept: manifests, newest first; history}`: what evidence there is, and what is known of earlier ends."""
    kept = [item for item in evidence.listing(ctx) if item["unit"] == unit_name]
    return {"kept": kept, "history": crashes.history(ctx, unit_name)}


@op("crash.note")
def crash_note(ctx: Context, unit_name: str, invocation: str, verdict: Json) -> Optional[Json]:
    """Remember a verdict; `{category, subcode, cause, count, first_unix, last_unix}` of all crashes like it."""
    return crashes.note(ctx, unit_name, invocation, verdict)


@op("crash.read")
def crash_read(
    ctx: Context, folder: str, names: Optional[List[str]] = None, with_requests: bool = False
) -> Iterator[Optional[str]]:
    """A .tar.gz in base64, piece by piece: the manifest and its files, or those that fit a pattern of `names`."""
    where = ctx.state / "evidence" / Path(folder).name
    if not (where / evidence.MANIFEST).exists():
        raise AgentError(f"the evidence {folder} is not on this host any more", hint="ddtool crash last")
    manifest = evidence.read_manifest(where / evidence.MANIFEST)
    files = [name for name in manifest["files"] if any(fnmatch(name, pattern) for pattern in names or ["*"])]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in [evidence.MANIFEST, *files]:
            yield None
            add(ctx, tar, where / name, int(manifest["unix"]), with_requests)
    data = archive.getvalue()
    for start in range(0, len(data), PIECE):
        yield base64.b64encode(data[start : start + PIECE]).decode()


def add(ctx: Context, tar: tarfile.TarFile, path: Path, unix: int, with_requests: bool) -> None:
    """One file, without the secrets of today's releases, and without requests unless asked for."""
    data = redact.mask_bytes(path.read_bytes(), redact.secret_values(ctx))
    if not with_requests:
        clean = records_without_requests if path.name == collect.JOURNAL else text_without_requests
        data = clean(data)
    member = tarfile.TarInfo(path.name)
    member.size, member.mtime, member.mode = len(data), unix, 0o600
    tar.addfile(member, io.BytesIO(data))


def text_without_requests(data: bytes) -> bytes:
    if b"obj" not in data:
        return data
    lines = data.decode(errors="replace").split("\n")
    return "\n".join(map(without_requests, lines)).encode()


@op("crash.take")
def crash_take(ctx: Context, unit_name: str) -> Iterator[Optional[Json]]:
    """Evidence of the running service; ends with its manifest and folder."""
    taken: List[Json] = []
    failed: List[AgentError] = []

    def take() -> None:
        try:
            taken.append(evidence.of_running(ctx, unit_name, lambda event, **fields: None))
        except AgentError as error:
            failed.append(error)
        except OSError as error:
            failed.append(AgentError(str(error)))

    worker = threading.Thread(target=take, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(WAIT_S)
        yield None
    if failed:
        raise failed[0]
    yield taken[0]
