"""SGLang's command line as a mapping: which words are flags, which are their values. Pure."""

from __future__ import annotations

import re
from typing import Any

from ddtool.profile.release_flags import ReleaseFlags

TEXTS = re.compile(r"(^|-)(name|path|revision|version|template|parser|format|paths)$")  # never a number


def parse(words: list[str], known: ReleaseFlags | None) -> tuple[dict[str, list[str]], list[str]]:
    """Flag without dashes → its words ([] for a switch), and the words that belong to none.

    The last one given counts, as in argparse; an abbreviation is written out where the release's flags are known.
    """
    flags: dict[str, list[str]] = {}
    strays: list[str] = []
    name = None
    for word in words:
        if re.match(r"--[A-Za-z]", word):
            given, equals, value = word[2:].partition("=")
            name = written_out(given.replace("_", "-"), known)
            flags[name] = [value] if equals else []
            name = None if equals else name
        elif name is not None and not (known and known.flags.get(name) == "store_true"):
            flags[name].append(word)
        else:
            strays.append(word)
    return flags, strays


def written_out(flag: str, known: ReleaseFlags | None) -> str:
    if known is None or flag in known.flags:
        return flag
    meant = [name for name in known.flags if name.startswith(flag)]
    return meant[0] if len(meant) == 1 else flag


def from_config(values: dict[str, Any]) -> dict[str, list[str]]:
    """The same from the mapping of a `--config` file: false and null are as if not given."""
    flags = {}
    for key, value in values.items():
        name = str(key).replace("_", "-")
        if value is None or value is False:
            continue
        items = value if isinstance(value, list) else [] if value is True else [value]
        flags[name] = [str(item) for item in items]
    return flags


def typed(flag: str, words: list[str]) -> Any:
    """A flag's value as a profile has it: true, one value, or a list. 007 stays text, 0.850 does not."""
    if not words:
        return True
    values = [_scalar(flag, word) for word in words]
    return values[0] if len(values) == 1 else values


def _scalar(flag: str, word: str) -> Any:
    if TEXTS.search(flag):
        return word
    if re.fullmatch(r"-?[0-9]{1,18}", word):
        return int(word) if str(int(word)) == word else word
    return float(word) if re.fullmatch(r"-?[0-9]+\.[0-9]+", word) else word
