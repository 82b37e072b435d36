"""Releases on the host: `STATE/services/UNIT/service.json` names the current one, `releases/ID/` holds each.

A release folder has the unit's text, the `--config` file and the environment (0600: they carry the secrets), the
engine's and the probe's files, this agent, and `release.json` with what made it. A release is never changed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import disk
from .client import Key
from .errors import AgentError
from .registry import Context

SCHEMA = "ddtool.service/1"
KEPT_RELEASES = 5


def service_folder(ctx: Context, unit: str) -> Path:
    return ctx.state / "services" / unit


def units(ctx: Context) -> List[str]:
    """The units that ddtool has deployed on this host."""
    return sorted(path.parent.name for path in ctx.state.glob("services/*/service.json"))


def folder(ctx: Context, unit: str, ident: str) -> Path:
    return service_folder(ctx, unit) / "releases" / ident


def read_json(path: Path) -> Dict[str, Any]:
    """{} when the file does not exist."""
    try:
        data: Dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return data


def of_schema(path: Path, schema: str) -> Dict[str, Any]:
    """read_json() of a file that says its format; AgentError when that is not `schema`."""
    found = read_json(path)
    if found.get("schema", schema) != schema:
        raise AgentError(f"{path} is {found['schema']}, not {schema}", "use the ddtool that wrote it")
    return found


def service(ctx: Context, unit: str) -> Dict[str, Any]:
    """`{schema, unit, profile, current, previous}`, {} when ddtool has deployed nothing under this name.

    Raises AgentError for one of another version: a later ddtool may mean something else by the same words.
    """
    return of_schema(service_folder(ctx, unit) / "service.json", SCHEMA)


def current_id(ctx: Context, unit: str) -> Optional[str]:
    return service(ctx, unit).get("current")


def meta(ctx: Context, unit: str, ident: str) -> Dict[str, Any]:
    return read_json(folder(ctx, unit, ident) / "release.json")


def current_gate(ctx: Context, unit: str) -> Optional[Dict[str, Any]]:
    ident = current_id(ctx, unit)
    gate = meta(ctx, unit, ident).get("gate") if ident else None
    return with_api_key(ctx, unit, ident, gate) if ident and gate else None


def started_from(ctx: Context, unit: str, pid: int) -> Optional[str]:
    """The release whose folder is the process's working directory, as ddtool's unit files have it; else None."""
    try:
        cwd = Path(os.readlink(f"/proc/{pid}/cwd")) if pid else None  # noqa: PTH115  Path.readlink is Python 3.9
    except OSError:
        return None
    return cwd.name if cwd and cwd.parent == folder(ctx, unit, "_").parent else None


def with_api_key(ctx: Context, unit: str, ident: str, gate: Dict[str, Any]) -> Dict[str, Any]:
    """The gate's spec refers to the service's API key as `${env:NAME}`; the value, a client.Key, is only here."""
    key: Optional[str] = gate.get("api_key")
    for name, value in read_json(folder(ctx, unit, ident) / "secrets.json").items():
        key = key and key.replace(f"${{env:{name}}}", value)
    return {**gate, "api_key": Key(key, unit) if key else None}


def write(ctx: Context, unit: str, release: Dict[str, Any]) -> None:
    """release: `{id, salt, files: [{path, content: base64, mode}], meta, secrets}`. Written aside, then renamed."""
    keep_salt(ctx, release["salt"])
    final = folder(ctx, unit, release["id"])
    partial = final.with_name("." + release["id"])
    shutil.rmtree(partial, ignore_errors=True)
    contents = [(item["path"], base64.b64decode(item["content"]), item["mode"]) for item in release["files"]]
    contents.append(("agent.pyz", running_agent().read_bytes(), 0o600))
    contents.append(("secrets.json", json.dumps(release["secrets"]).encode(), 0o600))
    contents.append(("release.json", json.dumps(release["meta"]).encode(), 0o600))
    for path, content, mode in contents:
        disk.make_dirs((partial / path).parent, 0o700)
        with disk.naming(partial / path):
            disk.write_new(partial / path, content, mode)
    for folder_of in [*(item for item in partial.rglob("*") if item.is_dir()), partial]:
        disk.flush_folder(folder_of)
    partial.rename(final)
    disk.flush_folder(final.parent)


def running_agent() -> Path:
    """The zipapp that this code runs from, as it came: a file, or `/proc/self/fd/N` while it only lives in memory."""
    path = Path(sys.argv[0])
    return path.with_name(path.name.partition(".")[0] + ".pyz") if path.name.count(".") == 2 else path


def discard(ctx: Context, unit: str, ident: str) -> None:
    path = folder(ctx, unit, ident)
    shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(path.with_name("." + ident), ignore_errors=True)
    for folder_of in (path.parent, service_folder(ctx, unit), ctx.state / "services"):
        disk.remove_empty(folder_of)  # one that is gone may have been the last act before a kill


def listing(ctx: Context, unit: str) -> List[Dict[str, Any]]:
    """Newest first: `{id, digest, created_unix, …}` and whether it is `current` or `previous`."""
    service_now = service(ctx, unit)
    found = []
    for path in sorted((service_folder(ctx, unit) / "releases").glob("[!.]*"), reverse=True):
        about = read_json(path / "release.json")
        role = next((role for role in ("current", "previous") if service_now.get(role) == path.name), None)
        found.append({"id": path.name, "role": role, **about})
    return found


def prune(ctx: Context, unit: str) -> None:
    """Keep the current, the previous and the newest few. One that goes is no release from the first moment on."""
    for about in listing(ctx, unit)[KEPT_RELEASES:]:
        path = folder(ctx, unit, about["id"])
        if about["role"] is None:
            path.rename(path.with_name("." + path.name))
    for path in (service_folder(ctx, unit) / "releases").glob(".*"):
        shutil.rmtree(path)


def purge(ctx: Context, unit: str) -> None:
    shutil.rmtree(service_folder(ctx, unit), ignore_errors=True)
    try:
        (ctx.state / "services").rmdir()
    except OSError:
        return


def salt(ctx: Context) -> str:
    """Fingerprints of secrets are salted per host. "" before the first deploy."""
    path = ctx.state / "salt"
    return path.read_text() if path.exists() else ""


def keep_salt(ctx: Context, value: str) -> None:
    if not salt(ctx):
        disk.atomic_write(ctx.state / "salt", value.encode(), mode=0o600)
