"""Texts that ddtool did not write: read as they are, and without their secrets before they leave the host.

A hand-made unit has its API key in `ExecStart=` and its tokens in `Environment=`. What stands where such a value is
expected goes out as `${env:NAME}`, which is also what a profile says in its place.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping

from . import disk, redact
from .names import HEADER

WHOLE = 8  # a value this long is masked wherever it occurs; a shorter one only where it was found
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_HIDDEN = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|KEY)"
_VALUE = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[^\s"';]+)"""
_ASSIGNMENT = re.compile(
    rf"(?P<before>(?<![A-Za-z0-9_$-])(?P<name>(?:[A-Za-z0-9]*_)*[A-Za-z0-9]*{_HIDDEN})=)(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    rf"(?P<before>(?P<quote>[\"'])(?P<name>(?:[A-Za-z0-9]*_)*[A-Za-z0-9]*{_HIDDEN})=)(?P<value>(?:\\.|(?!(?P=quote))[^\n])+)",
    re.IGNORECASE,
)
_FLAG = re.compile(
    r"(?P<before>--(?P<name>[a-z0-9_-]*(?:token|secret|password|key))(?:=|(?:[ \t]|\\\r?\n)+))"
    rf"(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(
    rf"(?P<name>{_NAME})=(?P<quote>[\"']?)(?P<value>[a-z]+://[^/\s:@\"']+:[^/\s@\"']+@[^\s\"';]+)"
)
_YAML = re.compile(
    rf"^(?P<before>\s*(?P<name>[a-z0-9_-]*(?:token|secret|password|key))\s*:[ \t]+)(?P<value>{_VALUE})\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_LINE = re.compile(
    rf"^[ \t]*(?P<name>(?:[A-Za-z0-9]*_)*[A-Za-z0-9]*{_HIDDEN})=(?P<value>[^\n]+)$",
    re.IGNORECASE | re.MULTILINE,
)
_BEARER = re.compile(r"\b(?P<value>hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})\b")


class Masks:
    """Value → name. One object per answer, so that a key has one name in all of its texts."""

    def __init__(self) -> None:
        self.names: Dict[str, str] = {}

    def learn(self, texts: Iterable[str]) -> None:
        for text in texts:
            for pattern in (_QUOTED, _ASSIGNMENT, _CREDENTIALS, _FLAG, _YAML, _BEARER):
                for found in pattern.finditer(text):
                    value = _bare(found.group("value"))
                    if _is_literal(value):
                        self.names.setdefault(value, self._name(pattern, found))

    def learn_lines(self, texts: Iterable[str]) -> None:
        """Of environment files, where a value goes on to the end of its line."""
        for text in texts:
            for found in _LINE.finditer(text):
                value = _bare(found.group("value").strip())
                if _is_literal(value):
                    self.names.setdefault(value, found.group("name"))

    def all(self, texts: Mapping[str, str]) -> Dict[str, str]:
        return {path: self.clean(text) for path, text in texts.items()}

    def written(self) -> List[str]:
        """Every form of each value that is masked wherever it occurs, longest first."""
        found = {form for value in self.names if len(value) >= WHOLE for form in redact.forms(value)}
        return sorted(found, key=len, reverse=True)

    def _name(self, pattern: Any, found: Any) -> str:
        if pattern is _BEARER:
            return "HF_TOKEN" if found.group("value").startswith("hf_") else "SECRET_KEY"
        name: str = found.group("name")
        return "SGLANG_" + name.replace("-", "_").upper() if pattern in (_FLAG, _YAML) else name

    def clean(self, text: str) -> str:
        for pattern in (_QUOTED, _ASSIGNMENT, _FLAG, _YAML):
            text = pattern.sub(self._reference, text)
        for value in sorted(self.names, key=len, reverse=True):
            if len(value) >= WHOLE:
                text = text.replace(value, f"${{env:{self.names[value]}}}")
        return text

    def _reference(self, found: Any) -> str:
        value = found.group("value")
        name = self.names.get(_bare(value))
        if name is None:
            return str(found.group(0))
        quote = value[0] if value[0] in "\"'" else ""
        return f"{found.group('before')}{quote}${{env:{name}}}{quote}"

    def words(self, argv: List[str]) -> List[str]:
        """An argument vector, whose words stand apart already."""
        cleaned = []
        for before, word in zip(["", *argv], argv):  # noqa: B905  strict= is Python 3.10
            secret = re.fullmatch(r"--[a-z0-9_-]*(?:token|secret|password|key)", before, re.IGNORECASE)
            if secret and word in self.names:
                word = f"${{env:{self.names[word]}}}"
            cleaned.append(self.clean(word))
        return cleaned


def masked(text: str) -> str:
    """One text by itself, such as a process's command line."""
    masks = Masks()
    masks.learn([text])
    return masks.clean(text)


def texts(paths: Iterable[str]) -> Dict[str, Dict[str, str]]:
    """`{files, sha256}` by path: ddtool's own texts as they are, others masked; the hash is that of the bytes."""
    contents = {path: Path(path).read_bytes() for path in paths if Path(path).is_file()}
    decoded = {path: content.decode(errors="replace") for path, content in contents.items()}
    others = [text for text in decoded.values() if not text.startswith(HEADER)]
    masks = Masks()
    masks.learn(others)
    return {
        "files": {
            path: text if text.startswith(HEADER) else masks.clean(text) for path, text in decoded.items()
        },
        "sha256": {path: disk.sha256(content) for path, content in contents.items()},
    }


def _bare(value: str) -> str:
    return (
        value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value.rstrip("\"'")
    )


def _is_literal(value: str) -> bool:
    """Neither empty nor a reference to another variable, a file or a specifier."""
    return bool(value) and not value.startswith(("$", "%")) and "${" not in value
