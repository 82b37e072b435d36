"""Proof of effect: which running process loaded which patch, and which units run from an installation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import careful

Json = Dict[str, Any]
Process = Tuple[int, int, str]
"""pid, start time in clock ticks since boot, title (its command line)."""

SCHEDULER = re.compile(r"sglang::scheduler\w*")
TP_RANK = re.compile(r"_TP(\d+)")
UNIT = re.compile(r"/([^/\n]+)\.service(?=/|$)", re.MULTILINE)


def rank_of(title: str) -> Optional[int]:
    """Tensor-parallel rank of a scheduler from its title `sglang::scheduler_TP3`; None for any other process."""
    found = SCHEDULER.search(title)
    if found is None:
        return None
    rank = TP_RANK.search(found.group())
    return int(rank.group(1)) if rank else 0


def loaded(folder: Path, processes: Iterable[Process]) -> List[Json]:
    """One row per scheduler of the unit: `{rank, pid, title, patches: [{name, sha, reached}]}`, an item for each file.

    `patches` is None without a proof. `reached`: the code inserted into that file has run in that process.

    A proof belongs to a process only when pid and start time agree: pids are used again.
    """
    rows = []
    for pid, start, title in processes:
        rank = rank_of(title)
        if rank is not None:
            proof = careful.read_record(folder / f"{pid}-{start}.json")
            patches = None if proof is None else _patches(proof)
            rows.append({"rank": rank, "pid": pid, "title": title, "patches": patches})
    return sorted(rows, key=lambda row: (row["rank"], row["pid"]))


def _patches(proof: Json) -> List[Json]:
    listed = proof.get("patches")
    items = listed if isinstance(listed, list) else []
    return [
        {
            "name": str(item.get("name")),
            "sha": str(item.get("sha")),
            "reached": item.get("reached") is True,
        }
        for item in items
        if isinstance(item, dict)
    ]


def units_using(
    site: Path, venv: str, units: Path = Path("/etc/systemd/system"), proc: Path = Path("/proc")
) -> Dict[str, List[int]]:
    """Units that use an installation → pids of their processes; `pid N` for a process outside of one.

    A process uses it that maps files below its site-packages (native modules), or whose program is the venv's. A unit
    that does not run, too, when its file starts the venv's program: it will load what is there then.
    """
    programs = tuple({f"{venv}/bin/", f"{Path(venv).resolve()}/bin/"})
    users: Dict[str, List[int]] = {}
    for path in sorted(units.glob("*.service")):
        if path.is_symlink() and path.resolve().name != path.name:
            continue  # another name of a unit, made by its Alias=
        if any(program in text for program in programs for text in _commands(path)):
            users[path.name[: -len(".service")]] = []
    for folder in sorted(proc.iterdir()):
        if not folder.name.isdigit():
            continue
        try:
            mapped = f"{site}/" in (folder / "maps").read_text(errors="replace")
            if not mapped and not (folder / "cmdline").read_text(errors="replace").startswith(programs):
                continue
            found = UNIT.findall((folder / "cgroup").read_text())
        except OSError:
            continue
        users.setdefault(found[-1] if found else f"pid {folder.name}", []).append(int(folder.name))
    return users


def _commands(path: Path) -> List[str]:
    try:
        return [
            line for line in path.read_text(errors="replace").splitlines() if line.startswith("ExecStart=")
        ]
    except OSError:
        return []
