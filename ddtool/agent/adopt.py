"""A unit that somebody made by hand: what belongs to it, what is kept of it while ddtool runs it, and giving it back.

    originals   the unit file, its drop-ins and its links below /etc/systemd/system, as they are now
    adopted     the same as they were before ddtool took the unit over: STATE/services/UNIT/adopted.json

Bytes are kept in STATE/objects. They never leave the host: such files hold keys in plain text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import disk, objects, releases, unit
from .files import FileChange
from .names import GATE_DROP_IN_FILE, HEADER
from .registry import Context

SCHEMA = "ddtool.adopted/1"
WISHES = (".wants", ".requires", ".upholds")

Originals = Dict[str, Any]
Links = Dict[str, str]


def unit_path(ctx: Context, name: str) -> Path:
    return ctx.units / unit.service(name)


def drop_in_folder(ctx: Context, name: str) -> Path:
    return ctx.units / (unit.service(name) + ".d")


def is_foreign(ctx: Context, name: str, fragment: Optional[str]) -> bool:
    """Whether the unit that systemd has loaded under this name was written by somebody else."""
    try:
        return bool(fragment) and not Path(str(fragment)).read_text(errors="replace").startswith(HEADER)
    except OSError:
        return False


def originals(ctx: Context, name: str) -> Originals:
    """`{files: [{path, sha256, mode, uid, gid}], links: {path: target}, folder, wish_folders, digest}`.

    `links` holds a linked unit or drop-in and what enables the unit; `digest` names all but the latter.
    `wish_folders`: those of all units, so that giving back leaves one that was there and empty.
    """
    folder = drop_in_folder(ctx, name)
    drop_ins = [path for path in sorted(folder.glob("*.conf")) if path.name != GATE_DROP_IN_FILE]
    paths = [path for path in (unit_path(ctx, name), *drop_ins) if os.path.lexists(path)]
    files = [{"path": str(path), **_about(path)} for path in paths if not path.is_symlink()]
    own = {str(path): _target(path) for path in paths if path.is_symlink()}
    digest = disk.sha256(json.dumps([files, own], sort_keys=True).encode())
    return {
        "files": files,
        "links": {**own, **wishes(ctx, name)},
        "folder": _ownership(folder) if folder.is_dir() else None,
        "wish_folders": [str(path) for path in _wish_folders(ctx)],
        "digest": digest,
    }


def wishes(ctx: Context, name: str) -> Links:
    """The links by which other units want this one, and its aliases: what `systemctl enable` makes."""
    full = unit.service(name)
    # Not by glob, which misses a link whose target is gone.
    found = [folder / full for folder in _wish_folders(ctx)]
    found += [path for path in ctx.units.glob("*.service") if path.name != full and path.is_symlink()]
    targets = {str(path): _target(path) for path in found if path.is_symlink()}
    return {path: target for path, target in targets.items() if Path(target).name == full}


def _wish_folders(ctx: Context) -> List[Path]:
    return sorted(path for kind in WISHES for path in ctx.units.glob(f"*{kind}"))


def missing_folders(wanted: Links) -> List[str]:
    """What `put_links` will make."""
    return sorted({str(Path(path).parent) for path in wanted if not Path(path).parent.is_dir()})


def emptied_folders(now: Links, record: Dict[str, Any]) -> List[str]:
    """Folders of wishes that the originals did not have and that may be left empty once their links are back.

    A takeover by an earlier ddtool did not note the folders: then, as for systemd, an empty one is nobody's.
    """
    gone = {Path(path).parent for path in now.keys() - record["links"].keys()}
    kept = record.get("wish_folders", ())
    return sorted(str(path) for path in gone if path.suffix in WISHES and str(path) not in kept)


def put_links(ctx: Context, name: str, wanted: Links) -> None:
    """Exactly these links belong to the unit from now on. Folders are made for them; none is removed."""
    now = originals(ctx, name)["links"]
    for path in sorted(now.keys() - wanted.keys()):
        disk.remove(Path(path))
        disk.flush_folder(Path(path).parent)
    for path, target in sorted(wanted.items()):
        in_the_way = os.path.lexists(path) and not Path(path).is_symlink()
        if now.get(path) != target and not in_the_way:  # somebody's file there is not ours to remove
            disk.make_dirs(Path(path).parent)
            with disk.naming(Path(path)):
                disk.remove(Path(path))
                Path(path).symlink_to(target)
                disk.flush_folder(Path(path).parent)


def drop_own_link(ctx: Context, name: str) -> None:
    """A linked unit's file lies elsewhere and is not ours to replace: only the link makes room."""
    path = unit_path(ctx, name)
    if path.is_symlink():
        disk.remove(path)
        disk.flush_folder(path.parent)


def record_path(ctx: Context, name: str) -> Path:
    return releases.service_folder(ctx, name) / "adopted.json"


def adopted(ctx: Context, name: str) -> Dict[str, Any]:
    """`{schema, unit, unix, active, enabled, files, links, folder, digest}`; {} when ddtool took nothing over."""
    return releases.of_schema(record_path(ctx, name), SCHEMA)


def keeping(ctx: Context, name: str, found: Originals, about: Dict[str, Any]) -> List[FileChange]:
    """The changes that take the originals' files away and keep their bytes. `about`: `{unix, active, enabled}`."""
    changes = []
    for item in found["files"]:
        content = Path(item["path"]).read_bytes()
        changes.append(objects.keep(ctx, content))
        if item["path"] != str(unit_path(ctx, name)):  # that one is replaced, by the caller
            changes.append(FileChange(item["path"], None, expect=item["sha256"]))
    text = json.dumps({"schema": SCHEMA, "unit": name, **about, **found})
    # Two drop-ins may have the same bytes.
    kept = {change.path: change for change in changes if change is not None}
    return [*kept.values(), FileChange(str(record_path(ctx, name)), text.encode(), mode=0o600)]


def restoring(ctx: Context, record: Dict[str, Any]) -> List[FileChange]:
    """The changes that put the originals' files back: bytes, mode and owner."""
    return [
        FileChange(
            item["path"],
            objects.get(ctx, item["sha256"]),
            mode=item["mode"],
            owner=(item["uid"], item["gid"]),
        )
        for item in record["files"]
    ]


def restore_folder(ctx: Context, record: Dict[str, Any]) -> None:
    """The drop-ins' folder was made anew, so it needs its mode and owner."""
    folder, wanted = drop_in_folder(ctx, record["unit"]), record["folder"]
    if wanted and folder.is_dir() and _ownership(folder) != wanted:
        os.chown(str(folder), wanted["uid"], wanted["gid"])
        folder.chmod(wanted["mode"])


def forget(ctx: Context, name: str) -> None:
    """Remove the kept bytes, unless another unit's takeover keeps the same."""
    others = [adopted(ctx, other) for other in releases.units(ctx) if other != name]
    needed = {item["sha256"] for record in others for item in record.get("files", [])}
    for item in adopted(ctx, name).get("files", []):
        if item["sha256"] not in needed:
            disk.remove(objects.path(ctx, item["sha256"]))


def takeover(ctx: Context, name: str, state: Dict[str, Any]) -> Dict[str, Any]:
    """For facts and status: `{foreign, adopted, runs}`.

    `foreign`: the originals' `{digest, paths, obstacle}` when the unit is somebody else's. `adopted`: what ddtool
    keeps of the unit that it took over. `runs`: the release that the main process was started from, so that it is
    null while the process of before the takeover goes on.
    """
    found = originals(ctx, name) if is_foreign(ctx, name, state.get("path")) else None
    record = adopted(ctx, name)
    kept = {key: record[key] for key in ("unix", "active", "enabled", "digest")} if record else {}
    return {
        "foreign": {"digest": found["digest"], "paths": _paths(found), "obstacle": obstacle(name)}
        if found
        else None,
        "adopted": {**kept, "paths": _paths(record)} if record else None,
        "runs": releases.started_from(ctx, name, int(state.get("main_pid") or 0)),
    }


def _paths(found: Originals) -> List[str]:
    return [*(item["path"] for item in found["files"]), *found["links"]]


def obstacle(name: str) -> Optional[Dict[str, str]]:
    """Why no file of this name can take the unit's place, `{message, hint}`: another name, or systemd-run's."""
    about = unit.show(name, ("Id", "Transient"))
    if about.get("Transient") == "yes":
        return {
            "message": f"{name} was made by systemd-run and vanishes when it stops: there is no file",
            "hint": "stop it first, or deploy under another name with --set service.unit=NAME",
        }
    real = about.get("Id", "")
    if real != unit.service(name):
        return {
            "message": f"{name} is only another name of {real}",
            "hint": f"take that one over: --set service.unit={real[: -len('.service')]}",
        }
    return None


def _target(link: Path) -> str:
    return os.readlink(link)  # noqa: PTH115  Path.readlink is Python 3.9


def _about(path: Path) -> Dict[str, Any]:
    return {"sha256": disk.digest(path), **_ownership(path)}


def _ownership(path: Path) -> Dict[str, int]:
    stat = path.stat()
    return {"mode": stat.st_mode & 0o7777, "uid": stat.st_uid, "gid": stat.st_gid}
