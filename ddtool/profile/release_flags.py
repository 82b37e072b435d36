"""SGLang's own flags by release, derived from its wheel: which exist, how they parse, which nothing reads.

    python -m ddtool.profile.release_flags WHEEL...    writes flags/RELEASE.json beside this file

The data ships with ddtool, so that a profile is checked without the wheel; a test derives it again.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "flags"
SERVER_ARGS = "sglang/srt/server_args.py"

_ATTRIBUTE = re.compile(r"(?<!\bServerArgs)\.([a-z_][a-z0-9_]*)\b(?!\s*=[^=])")
_QUOTED = re.compile(r"""["']([a-z_][a-z0-9_]*)["']""")


@dataclass(frozen=True)
class ReleaseFlags:
    """`flags` maps a flag without dashes in front to its argparse action.

    `unread` are defined and parsed, but no code of that release reads them. Only `store` and `store_true`
    can stand in SGLang's config file; another action is refused by its own merger.
    """

    release: str
    flags: dict[str, str]
    unread: list[str]


@cache
def load(release: str) -> ReleaseFlags | None:
    """The shipped data of `release`, or None when ddtool knows none."""
    path = FOLDER / f"{release}.json"
    if not path.is_file():
        return None
    return ReleaseFlags(**json.loads(path.read_text(encoding="utf-8")))


def known_releases() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def from_wheel(wheel: Path) -> ReleaseFlags:
    """Derive the data from an SGLang wheel, by reading its source; nothing of it is imported or run."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("sglang/") and name.endswith(".py")]
        sources = {name: archive.read(name).decode("utf-8") for name in names}
    flags: dict[str, str] = {}
    fields: dict[str, list[str]] = {}
    for call in _add_argument_calls(ast.parse(sources[SERVER_ARGS])):
        options, action, dest = _read_call(call)
        for option in options:
            flags[option] = action
            fields.setdefault(dest, []).append(option)
    unread = fields.keys() - _names_read(sources)
    # Actions that only print a warning or set another flag's field have no field of their own to read.
    plain = [flag for name in unread for flag in fields[name] if flags[flag] in ("store", "store_true")]
    release = wheel.name.split("-")[1]
    return ReleaseFlags(release, dict(sorted(flags.items())), sorted(plain))


def _add_argument_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            yield node


def _read_call(call: ast.Call) -> tuple[list[str], str, str]:
    """Long options without dashes, action, and the field it is stored in."""
    options = [
        argument.value.removeprefix("--")
        for argument in call.args
        if isinstance(argument, ast.Constant)
        and isinstance(argument.value, str)
        and argument.value.startswith("--")
    ]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    action = keywords.get("action")
    name = "store"
    if isinstance(action, ast.Constant):
        name = str(action.value)
    elif action is not None:
        name = ast.unparse(action).rsplit(".", 1)[-1]
    dest = keywords.get("dest")
    if isinstance(dest, ast.Constant):
        return options, name, str(dest.value)
    return options, name, options[0].replace("-", "_") if options else ""


def _names_read(sources: dict[str, str]) -> set[str]:
    """Every attribute that is loaded, and in the runtime every name in quotes (getattr and the like take names).

    `ServerArgs.x` gives a flag its default and reads nothing. Quoted names outside `sglang/srt` are skipped:
    command line generators there list flags without acting on them. Comments count, so a flag is called unread
    only when nothing even mentions it.
    """
    names: set[str] = set()
    for path, source in sources.items():
        names.update(_ATTRIBUTE.findall(source))
        if path.startswith("sglang/srt/") and path != SERVER_ARGS:
            names.update(_QUOTED.findall(source))
    return names


def main(wheels: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for wheel in wheels:
        derived = from_wheel(Path(wheel))
        text = json.dumps(asdict(derived), indent=1, sort_keys=True) + "\n"
        (FOLDER / f"{derived.release}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
