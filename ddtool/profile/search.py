"""Where profiles lie: by name in three folders, or by path."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from ddtool.data import data_folder
from ddtool.errors import ProfileError


def search_path() -> list[Path]:
    """Folders in which a profile's name is looked up, first match wins."""
    return [Path("profiles"), platformdirs.user_config_path("ddtool") / "profiles", data_folder("profiles")]


def available(search: Sequence[Path] | None = None) -> dict[str, Path]:
    """Every profile that can be named, with its file; a nearer folder hides a farther one's."""
    found: dict[str, Path] = {}
    for folder in search_path() if search is None else search:
        for path in sorted(folder.glob("*.y*ml")) if folder.is_dir() else ():
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find(name_or_path: str, search: Sequence[Path] | None = None) -> Path:
    """The file of a profile's name, or the path itself. The profile's name is the file's, without its suffix."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        if path.is_file():
            return path
        raise ProfileError(f"no profile file {name_or_path}", hint="ddtool profile list")
    profiles = available(search)
    if name_or_path in profiles:
        return profiles[name_or_path]
    near = difflib.get_close_matches(name_or_path, profiles, 1)
    raise ProfileError(
        f"no profile named {name_or_path}" + (f"; did you mean {near[0]}?" if near else ""),
        why="searched " + ", ".join(str(folder) for folder in (search_path() if search is None else search)),
        hint="ddtool profile list",
    )
