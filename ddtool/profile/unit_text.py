"""Unit files as systemd reads them: lines joined, drop-ins merged, quotes, specifiers and variables resolved. Pure.

What systemd would refuse is kept as it is: this reads units that run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Settings of which each line adds one, and an empty line takes all before it away. The last line of others counts.
LISTS = {
    *(
        "ExecStart",
        "ExecStartPre",
        "ExecStartPost",
        "ExecStop",
        "ExecStopPost",
        "ExecReload",
        "ExecCondition",
    ),
    *("Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment", "SupplementaryGroups"),
    *("After", "Before", "Wants", "Requires", "BindsTo", "PartOf", "Conflicts", "RequiresMountsFor"),
    *("DeviceAllow", "ReadWritePaths", "ReadOnlyPaths", "BindPaths", "CPUAffinity", "LoadCredential"),
    *("WantedBy", "RequiredBy", "Alias", "Documentation"),
}
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_NUMBERED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-7]{3})")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$\$|\$\{{env:{_NAME}\}}|\$\{{({_NAME})\}}")


@dataclass(frozen=True)
class Setting:
    """One line that counts, `where` it stands (file:line)."""

    section: str
    name: str
    value: str
    where: str


def settings(texts: Mapping[str, str]) -> list[Setting]:
    """What counts of a unit file and its drop-ins, given in the order in which systemd reads them."""
    found: list[Setting] = []
    for path, text in texts.items():
        for new in _lines(path, text):
            if new.name not in LISTS or not new.value:
                found = [old for old in found if (old.section, old.name) != (new.section, new.name)]
            if new.value:
                found.append(new)
    return found


def _lines(path: str, text: str) -> list[Setting]:
    found, section, pending, start = [], "", "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.lstrip()
        if line.startswith(("#", ";")) or not (line or pending):
            continue
        start = start if pending else number
        if _continues(line):
            pending += line[:-1] + " "
            continue
        line, pending = (pending + line).strip(), ""
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line:
            name, _, value = line.partition("=")
            found.append(Setting(section, name.strip(), value.strip(), f"{path.rpartition('/')[2]}:{start}"))
    return found


def _continues(line: str) -> bool:
    """A backslash at the end joins the next line, unless it is itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def split_words(value: str) -> list[str]:
    """A value's words: quotes of both kinds, anywhere in a word, and C escapes in and out of them."""
    words: list[str] = []
    word, quote, at = None, "", 0
    while at < len(value):
        char = value[at]
        at += 1
        if char == "\\" and at < len(value):
            text, at = _escaped(value, at)
            word = (word or "") + text
        elif quote:
            word, quote = (word, "") if char == quote else ((word or "") + char, quote)
        elif char in "\"'":
            word, quote = word or "", char
        elif char.isspace():
            words, word = ([*words, word] if word is not None else words), None
        else:
            word = (word or "") + char
    return words if word is None else [*words, word]


def _escaped(value: str, at: int) -> tuple[str, int]:
    numbered = _NUMBERED.match(value, at)
    if numbered:
        digits = numbered.group(1) or numbered.group(2)
        return chr(int(digits, 16) if digits else int(numbered.group(3), 8)), numbered.end()
    return _ESCAPES.get(value[at], value[at]), at + 1


def specifiers(unit: str, host: Mapping[str, str]) -> dict[str, str]:
    """Letter → value for a system unit (name without suffix). `host` adds what only the host knows."""
    prefix, _, instance = unit.partition("@")
    named = {"n": f"{unit}.service", "N": unit, "p": prefix, "i": instance, "j": prefix.rpartition("-")[2]}
    folders = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp"}  # noqa: S108
    root = {"u": "root", "U": "0", "g": "root", "G": "0", "h": "/root", "s": "/bin/sh", "V": "/var/tmp"}  # noqa: S108
    return {**folders, **root, **host, **named, "I": _unescaped(instance), "P": _unescaped(prefix), "%": "%"}


def _unescaped(name: str) -> str:
    plain = name.replace("-", "/")
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found.group(1), 16)), plain)


def resolved(value: str, known: Mapping[str, str]) -> str:
    """Specifiers replaced; one that is not known stays."""
    return re.sub(r"%([A-Za-z%])", lambda found: known.get(found.group(1), found.group(0)), value)


def command(value: str, environment: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """An ExecStart's argument vector: prefixes taken off, specifiers and variables replaced. [] for an empty one."""
    words = split_words(value)
    if ";" in words:  # several commands in a oneshot unit: the first
        words = words[: words.index(";")]
    if not words:
        return []
    prefix, program = re.fullmatch(r"([-@:+!|]*)(.*)", words[0], re.DOTALL).groups()  # type: ignore[union-attr]
    rest = words[2:] if "@" in prefix else words[1:]
    if ":" in prefix:
        return [program, *(resolved(word, known) for word in rest)]
    expanded = [_expanded(resolved(word, known), environment) for word in rest]
    return [resolved(program, known), *(word for group in expanded for word in group)]


def _expanded(word: str, environment: Mapping[str, str]) -> list[str]:
    """`$NAME` as a word of its own is split at blanks; `${NAME}` is not. A masked secret's reference stays."""
    alone = re.fullmatch(rf"\$({_NAME})", word)
    if alone:
        return environment.get(alone.group(1), "").split()

    def value(found: re.Match[str]) -> str:
        if found.group(0) == "$$":
            return "$"
        return environment.get(found.group(1), "") if found.group(1) else found.group(0)

    return [_REFERENCE.sub(value, word)]


def assignments(value: str, known: Mapping[str, str]) -> dict[str, str]:
    """One `Environment=` line."""
    pairs = (resolved(word, known).partition("=") for word in split_words(value))
    return {name: text for name, equals, text in pairs if equals and re.fullmatch(_NAME, name)}


def environment_file(text: str) -> dict[str, str]:
    """An EnvironmentFile: a value may be quoted as a whole or in part; nothing is expanded in it."""
    found = {}
    joined = re.sub(r"\\\r?\n", "", text)
    for line in joined.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(_NAME, name.strip()):
            found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|(\\.)|([^'\"\\]+)", value)
    return "".join(
        single or re.sub(r"\\([\"\\`$])", r"\1", double) or escaped[1:] or plain
        for single, double, escaped, plain in parts
    )
