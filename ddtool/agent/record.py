"""What a package installation says about itself: where its files are, and the sha256 that each should have.

Read from the dist-info folder directly: this program runs in another Python than the installation's.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
import re
from pathlib import Path
from types import MappingProxyType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence
from urllib.parse import unquote, urlsplit

from .disk import digest
from .errors import PreflightError, UsageError

PRISTINE, CHANGED, MISSING = "pristine", "changed", "missing"


class Install(NamedTuple):
    """One installed distribution.

    root: the folder (real path) that holds the package folder; relative names below are relative to it
    record: name → sha256 (hex) from RECORD; empty when there is none
    unmanaged: why RECORD proves nothing here, or None
    """

    dist: str
    root: Path
    version: Optional[str] = None
    record: Mapping[str, str] = MappingProxyType({})
    unmanaged: Optional[str] = None

    def path(self, name: str) -> Path:
        """The file of a relative name. Raises UsageError for one that leads out of the package."""
        path = self.root / name
        if not name.startswith(self.dist + "/") or ".." in Path(name).parts:
            raise UsageError(f"{name} is not a file of the package {self.dist}", f"write {self.dist}/…")
        return path

    def files(self) -> Iterator[str]:
        """Relative names of all files in the package folder, without bytecode and our own temporary files."""
        for path in sorted((self.root / self.dist).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".ddtool-"):
                yield path.relative_to(self.root).as_posix()


def site_packages(venv: str) -> Path:
    """The real site-packages folder of a virtual environment. Raises PreflightError when there is none."""
    found = sorted(
        {path.resolve() for path in Path(venv).glob("lib*/python3*/site-packages") if path.is_dir()}
    )
    if len(found) != 1:
        what = "has no site-packages folder" if not found else "has several site-packages folders"
        raise PreflightError(f"{venv} {what}", "engine.venv must name a Python virtual environment")
    return found[0]


def find(venv: str, dist: str = "sglang") -> Install:
    """The installation of `dist` in a virtual environment. Raises PreflightError when it is not there."""
    site = site_packages(venv)
    infos = _dist_infos(site, dist)
    if not infos:
        if not (site / dist).is_dir():
            raise PreflightError(f"{dist} is not installed in {venv}", "check engine.venv in the profile")
        return Install(dist, site, unmanaged=f"{dist} in {site} has no dist-info: nothing says what is clean")
    if len(infos) > 1:
        names = ", ".join(info.name for info in infos)
        return Install(dist, site, unmanaged=f"{site} lists several versions ({names}): an install broke off")
    version = infos[0].name[: -len(".dist-info")].partition("-")[2]
    source = _editable_source(infos[0])
    if source is not None:
        return Install(dist, _package_root(source, dist), version, unmanaged=f"editable install of {source}")
    record = _read_record(infos[0] / "RECORD")
    if not record:
        return Install(
            dist, site, version, unmanaged=f"{infos[0].name} has no RECORD: nothing says what is clean"
        )
    return Install(dist, site, version, record)


def verify(install: Install, names: Optional[Sequence[str]] = None) -> Dict[str, str]:
    """name → `pristine`, `changed` or `missing`, for all of the package's recorded files, or for `names`."""
    prefix = install.dist + "/"
    chosen = names if names is not None else [name for name in install.record if name.startswith(prefix)]
    return {name: _compare(digest(install.root / name), install.record.get(name)) for name in chosen}


def added(install: Install) -> List[str]:
    """Files in the package folder that RECORD does not know."""
    return [name for name in install.files() if name not in install.record]


def _compare(found: Optional[str], wanted: Optional[str]) -> str:
    if found is None:
        return MISSING
    return PRISTINE if found == wanted else CHANGED


def _dist_infos(site: Path, dist: str) -> List[Path]:
    wanted = _normal(dist)
    return [
        info for info in sorted(site.glob("*.dist-info")) if _normal(info.name.partition("-")[0]) == wanted
    ]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _editable_source(info: Path) -> Optional[Path]:
    try:
        origin = json.loads((info / "direct_url.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _package_root(source: Path, dist: str) -> Path:
    """Where in a source tree the package folder lies: projects keep it at the top, or in python/ or src/."""
    for root in (source, source / "python", source / "src"):
        if (root / dist).is_dir():
            return root.resolve()
    raise PreflightError(f"{dist} is installed from {source}, but that folder has no {dist}", "reinstall it")


def _read_record(path: Path) -> Dict[str, str]:
    try:
        rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    hashes = {}
    for row in rows:
        if len(row) >= 2 and row[1].startswith("sha256=") and ".." not in row[0].split("/"):
            encoded = row[1][len("sha256=") :]
            try:
                hashes[row[0]] = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
            except (binascii.Error, ValueError):
                continue
    return hashes
