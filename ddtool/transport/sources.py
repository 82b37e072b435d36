"""Where each option of a host was set. `ssh -G` gives values only; with -vvv it also says which blocks applied.

For people who read `doctor ssh`; nothing is decided by it. A line is attributed when it stands in a block that ssh
applied and says what ssh resolved; values are never taken from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_READING = re.compile(r"debug1: Reading configuration data (.+)")
_HOST = re.compile(r"debug1: (.+) line (\d+): Applying options for .+")
_CRITERION = re.compile(r"debug3: (.+) line (\d+): matched '.*")
_OPTION = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")

Block = tuple[str, int]  # a file, and the line of its Host or Match


@dataclass
class Trail:
    """The files that ssh read, in order, and the blocks in them that applied."""

    files: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """A line of a file that was in force."""

    place: str  # path:line
    option: str  # in lower case
    value: str


def trail(debug: str) -> Trail:
    """Read from what `ssh -vvv -G` writes to stderr."""
    found = Trail()
    criteria: list[Block] = []
    for line in debug.splitlines():
        if match := _READING.fullmatch(line):
            found.files.append(match[1])
        elif match := _HOST.fullmatch(line):
            found.blocks.append((match[1], int(match[2])))
        elif match := _CRITERION.fullmatch(line):
            criteria.append((match[1], int(match[2])))
        elif line.startswith("debug2: checking match"):
            criteria.clear()
        elif line == "debug2: match found":
            found.blocks += criteria
    return Trail(list(dict.fromkeys(found.files)), list(dict.fromkeys(found.blocks)))


def settings(read: Trail) -> list[Setting]:
    """Every line in force, in the order of the files."""
    return [setting for path in read.files for setting in _in_force(path, read.blocks)]


def source(option: str, values: Sequence[str], found: Iterable[Setting]) -> str | None:
    """The place that set `option`, as `ssh -G` prints both: of several, the first that says what was resolved."""
    places = [setting for setting in found if setting.option == option]
    wanted = {value.lower() for value in values}
    exact = [setting for setting in places if setting.value.strip('"').lower() in wanted]
    return next((setting.place for setting in [*exact, *places]), None)


def _in_force(path: str, blocks: Sequence[Block]) -> Iterable[Setting]:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return
    applies = True  # what stands before the first Host or Match
    for number, line in enumerate(lines, start=1):
        match = _OPTION.fullmatch(line)
        if not match:
            continue
        option, value = match[1].lower(), match[2]
        if option in ("host", "match"):
            # ssh says nothing more of `Match all`.
            applies = (path, number) in blocks or (option, value.lower()) == ("match", "all")
        elif applies:
            yield Setting(f"{path}:{number}", option, value)
