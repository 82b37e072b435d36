"""Environments that ddtool made: `BASE-DIGEST` beside the name `BASE`, which is a link to the one that is in force.

The digest is that of the pinned requirements, so another set is another folder, and a rollback finds its own. An
environment counts from the moment its last file is written, `ddtool-environment.json`; what lacks that is rubbish.
`STATE/environments/…json` names every folder that was begun, so that one can be taken away whatever happened to it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from . import disk, pip, releases, wheels
from .errors import AgentError, PreflightError
from .registry import Context, op

Json = Dict[str, Any]
MARKER = "ddtool-environment.json"
SCHEMA = "ddtool.environment/1"
PROBE_S = 10.0
PROBE = """
import importlib.util, json, os, platform, sys
has = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3], "implementation": sys.implementation.name,
    "machine": platform.machine(), "glibc": platform.libc_ver()[1],
    "venv": has("venv"), "ensurepip": has("ensurepip"),
}))
"""


# What is there


@op("install.python")
def probe(ctx: Context, python: str) -> Json:
    """`{path, version, implementation, machine, glibc, venv, ensurepip}` of a Python, or `{path, error, others}`."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
        )
        return {"path": python, **json.loads(done.stdout)}
    except (OSError, ValueError, subprocess.TimeoutExpired):
        found = {
            str(one) for top in ("/usr/bin", "/usr/local/bin") for one in Path(top).glob("python3.[0-9]*")
        }
        others = sorted(one for one in found if one.rpartition(".")[2].isdigit())
        return {"path": python, "error": f"{python} does not run", "others": others}


def look(
    ctx: Context, base: str, path: Optional[str], digest: Optional[str], python: str, unit_name: str
) -> Json:
    """What a plan needs to know. `path` and `digest` are None while the operator cannot say what is wanted.

    `units`: others than `unit_name` whose environment goes by the same name.
    """
    link, parent = Path(base), Path(base).parent
    kind = "link" if link.is_symlink() else "absent" if not link.exists() else "other"
    return {
        "python": probe(ctx, python),
        "base": base,
        "base_kind": kind,
        "base_target": os.readlink(base) if kind == "link" else None,  # noqa: PTH115  Path.readlink is Python 3.9
        "path": path,
        "incomplete": incomplete(Path(path), digest) if path and digest else None,
        "units": [unit for unit in releases.units(ctx) if unit != unit_name and _base(ctx, unit) == base],
        "others_may_write": _others_may_write(parent),
        "free_bytes": wheels.free_bytes(parent),
        "state_free_bytes": wheels.free_bytes(ctx.state),
        "one_disk": wheels.device(parent) == wheels.device(ctx.state),
    }


def incomplete(path: Path, digest: str) -> Optional[str]:
    """Why the folder is not the finished environment of that digest; None when it is."""
    about = releases.read_json(path / MARKER)
    if about.get("digest") != digest:
        return "not made yet" if not path.exists() else "begun and never finished"
    if not (path / "bin" / "python").exists():
        return f"its Python is gone: {path}/bin/python"
    return None


def set_of(site: Path) -> Optional[str]:
    """The digest of the set that ddtool installed into this site-packages; None where it did not."""
    digest: Optional[str] = releases.read_json(site.parents[2] / MARKER).get("digest")
    return digest


def _base(ctx: Context, unit: str) -> Optional[str]:
    about = releases.meta(ctx, unit, releases.current_id(ctx, unit) or "")
    return (about.get("install") or {}).get("base")


def _others_may_write(folder: Path) -> Optional[Json]:
    """`{folder, anyone}`: where on the way there others than root could put something else in its place."""
    for one in (folder, *folder.parents):
        if one.exists():
            about = one.stat()
            anyone = bool(about.st_mode & stat.S_IWOTH)
            if anyone or about.st_mode & stat.S_IWGRP or about.st_uid not in (0, os.geteuid()):
                return {"folder": str(one), "anyone": anyone}
    return None


# Making one


def make(ctx: Context, args: Json, emit: pip.Emit, work: Path) -> None:
    """args: see `install_steps.Install`. Whatever stands in the place is rubbish: only a finished one is kept."""
    path = Path(args["path"])
    _register(ctx, args)
    disk.make_dirs(path.parent)
    if path.exists():
        shutil.rmtree(path)
    pip.install(args, wheels.folder(ctx), work, emit)
    about = {
        "schema": SCHEMA,
        "digest": args["digest"],
        "python": args["python"],
        "requirements": args["requirements"],
        "made_unix": round(time.time(), 3),
    }
    os.sync()  # thousands of files: one flush of the disk in place of one for each
    disk.atomic_write(path / MARKER, json.dumps(about, indent=1).encode(), mode=0o644)


def _entry(ctx: Context, path: str) -> Path:
    return ctx.state / "environments" / (disk.sha256(path.encode())[:16] + ".json")


def _register(ctx: Context, args: Json) -> None:
    entry = _entry(ctx, args["path"])
    disk.make_dirs(entry.parent, 0o700)
    # What another environment's note says was made for it goes with the last of those that lie in it.
    notes = [releases.read_json(one) for one in entry.parent.glob("[!.]*.json")]
    ours = {one for note in notes for one in note["made"]}
    made = [str(one) for one in Path(args["path"]).parents if str(one) in ours or not one.exists()]
    about = {"schema": SCHEMA, **{key: args[key] for key in ("path", "base", "digest")}, "made": made}
    disk.atomic_write(entry, json.dumps(about).encode())


# The name that is in force


def point(base: Path, target: Optional[str]) -> None:
    """Make `base` a link to `target`, in one step for whoever looks; None removes it.

    Raises PreflightError where something stands that is no link: it is not ddtool's.
    """
    if base.exists() and not base.is_symlink():
        raise PreflightError(f"{base} is not ddtool's to replace", "--set engine.venv=/another/path")
    fresh = base.with_name(f".ddtool-link-{base.name}")
    with disk.naming(base):
        disk.remove(fresh)
        if target is None:
            disk.remove(base)
        else:
            disk.make_dirs(base.parent)
            fresh.symlink_to(target)
            fresh.replace(base)
        if base.parent.is_dir():
            disk.flush_folder(base.parent)


# Taking away


def discard(ctx: Context, path: str) -> None:
    """The environment, its ledger of patches, the link that would dangle, and the note that it was begun."""
    entry = _entry(ctx, path)
    about = releases.read_json(entry)
    if about:
        _take_away(ctx, about, path)
        disk.remove(entry)
    disk.remove_empty(entry.parent)  # also when a kill came before this, or before the note


def _take_away(ctx: Context, about: Json, path: str) -> None:
    base = Path(about["base"])
    disk.remove(Path(path) / MARKER)  # first: half of it must not pass for an environment
    with disk.naming(Path(path)):
        if Path(path).exists():
            shutil.rmtree(path)
    if base.is_symlink() and os.readlink(about["base"]) == path:  # noqa: PTH115
        point(base, None)
    for ledger in (ctx.state / "ledger").glob("[!.]*.json"):
        if Path(path) in Path(releases.read_json(ledger).get("site", "/")).parents:
            disk.remove(ledger)
    for made in about["made"]:  # the innermost first
        disk.remove_empty(Path(made))


def prune(ctx: Context) -> None:
    """Environments that no release of any unit uses go."""
    used: Set[str] = set()
    for about in ctx.state.glob("services/*/releases/[!.]*/release.json"):
        venv = releases.read_json(about).get("venv")
        used.update({venv, os.path.realpath(venv)} if venv else ())
    for entry in sorted((ctx.state / "environments").glob("[!.]*.json")):
        path: str = releases.read_json(entry)["path"]
        if path not in used:
            discard(ctx, path)
    disk.remove_empty(ctx.state / "environments")  # the last `discard` may have been killed before it


def missing(ctx: Context, shas: List[str]) -> None:
    """Raises AgentError when a wheel is not here."""
    lacking = [sha for sha in shas if not wheels.path(ctx, sha).exists()]
    if lacking:
        raise AgentError(f"{len(lacking)} wheels have not been sent: {lacking[0]} …", "run the command again")
