"""Shell text as far as service wrappers use it: words, quotes, variables, and the commands in their order. Pure.

Nothing is run. What only a shell could answer (`$(…)`, `if`, loops) is reported by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

OPERATORS = ("&&", "||", ";;", ";", "|&", "|", "&", "\n", "(", ")")
CONTROL = {
    *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done"),
    *("case", "esac", "{", "}", "function"),
}
_REDIRECT = re.compile(r"(\d*|&)(>>|>&|>\||<<<|<<|<|>)")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SECRET = re.compile(rf"\$\{{env:{_NAME}\}}")
_VARIABLE = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(?::?([-=+?])([^}}]*))?\}}|([0-9@*#?$!]))")
UNRESOLVED = "\ue000"  # stands in a word for what a shell would have to compute


class NotPlain(Exception):
    """The text has more than a sequence of commands; says what."""


@dataclass
class Command:
    """`words` are expanded; `redirects` as written."""

    words: list[str] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    end: str = ""


@dataclass
class Reader:
    """Commands one by one: whoever reads them changes `variables` between two, as assignments do."""

    text: str
    variables: dict[str, str]
    at: int = 0

    def next(self) -> Command | None:
        """The next command with its operator; None at the end. Raises NotPlain for control flow."""
        command = Command()
        while self.at < len(self.text):
            self._skip_blanks()
            operator = next((item for item in OPERATORS if self.text.startswith(item, self.at)), None)
            if operator:
                self.at += len(operator)
                if command.words or command.redirects:
                    command.end = operator
                    return command
                if operator in ("(", ")"):
                    raise NotPlain("a subshell")
                continue
            redirect = _REDIRECT.match(self.text, self.at)
            if redirect:
                self.at = redirect.end()
                self._skip_blanks()
                command.redirects.append(redirect.group(0) + "".join(self._word()))
            elif self.at < len(self.text):
                words = self._word()
                if not command.words and words and words[0] in CONTROL:
                    raise NotPlain(f"`{words[0]}`")
                command.words += words
        return command if command.words or command.redirects else None

    def _skip_blanks(self) -> None:
        pattern = re.compile(r"(?:[ \t\r]|\\\r?\n|(?<![^\s;&|])#[^\n]*)*")
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _word(self) -> list[str]:
        """One word; an unquoted variable may make it none or several."""
        parts: list[str] = []
        pieces, quoted = [""], False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char.isspace() or char in ";&|()<>":
                break
            if self.text.startswith('"$@"', self.at):  # no arguments are no word at all
                self.at += 4
            elif char in "\"'":
                quoted = True
                pieces[-1] += self._quoted(char)
            elif char == "\\":
                pieces[-1] += self.text[self.at + 1 : self.at + 2].replace("\n", "")
                self.at += 2
            elif char in "$`":
                split = self._dollar().split()
                if split:
                    pieces[-1] += split[0]
                    pieces += split[1:]
            else:
                pieces[-1] += char
                self.at += 1
        parts += [piece for piece in pieces if piece or quoted]
        return parts

    def _quoted(self, quote: str) -> str:
        self.at += 1
        text = ""
        while self.at < len(self.text) and self.text[self.at] != quote:
            char = self.text[self.at]
            if quote == '"' and char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                text += "" if following == "\n" else following if following in '"\\$`' else char + following
                self.at += 2
            elif quote == '"' and char in "$`":
                text += self._dollar()
            else:
                text += char
                self.at += 1
        self.at += 1
        return text

    def _dollar(self) -> str:
        """What stands for `$…` or a backquoted command here."""
        secret = _SECRET.match(self.text, self.at)
        if secret:
            self.at = secret.end()
            return secret.group(0)
        if self.text.startswith(("$(", "`"), self.at):
            self.at = self._closing()
            return UNRESOLVED
        found = _VARIABLE.match(self.text, self.at)
        if not found:
            self.at += 1
            return "$"
        self.at = found.end()
        name, default = found.group(1) or found.group(2), found.group(4)
        if name is None:
            return ""  # $1, $@: a service's wrapper gets none
        value = self.variables.get(name)
        if found.group(3) == "+":
            return (default or "") if value else ""
        if not value and default is not None:
            return _plain(default, self.variables)
        return value or ""

    def _closing(self) -> int:
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            return len(self.text) if end < 0 else end + 1
        depth = 0
        for at in range(self.at + 1, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            if depth == 0:
                return at + 1
        return len(self.text)


def _plain(text: str, variables: Mapping[str, str]) -> str:
    """The default in `${NAME:-default}`, with plain variables in it."""
    return _VARIABLE.sub(lambda found: variables.get(found.group(1) or found.group(2) or "", ""), text)


def assignment(word: str) -> tuple[str, str] | None:
    """`NAME=value` before a command, or by itself."""
    found = re.fullmatch(rf"({_NAME})=(.*)", word, re.DOTALL)
    return (found.group(1), found.group(2)) if found else None
