"""YAML that remembers where each value stands, so that every complaint can name file and line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ddtool.errors import ProfileError

Loc = tuple[str | int, ...]

MOST_VALUES, DEEPEST = 20_000, 40


@dataclass
class Marked:
    """A mapping read from YAML, and "FILE:LINE" for every key path in it."""

    data: dict[str, Any]
    marks: dict[Loc, str] = field(default_factory=dict)

    def where(self, loc: Loc) -> str:
        """The mark of `loc`, or of the nearest enclosing key that has one."""
        for end in range(len(loc), -1, -1):
            if loc[:end] in self.marks:
                return self.marks[loc[:end]]
        return "profile"


def read(path: Path) -> Marked:
    """The YAML mapping in `path`. ProfileError with the line for bad YAML or a repeated key."""
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ProfileError(f"{_yaml_place(path, error)}: not valid YAML: {_yaml_problem(error)}") from error
    except RecursionError as error:
        raise ProfileError(f"{path}: nested too deeply for a profile") from error
    if not isinstance(root, yaml.MappingNode):
        raise ProfileError(f"{path}:1: a profile is a mapping of sections")
    marked = Marked({}, {(): f"{path}:1"})
    marked.data = _value(root, (), path, marked.marks)
    return marked


def _value(node: yaml.Node, loc: Loc, path: Path, marks: dict[Loc, str]) -> Any:
    # An alias of aliases of aliases, or one that holds itself.
    if len(marks) > MOST_VALUES or len(loc) > DEEPEST:
        raise ProfileError(f"{path}:{node.start_mark.line + 1}: larger or deeper than any profile")
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            mark = f"{path}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise ProfileError(f"{mark}: a key must be plain text")
            if key in result:
                raise ProfileError(f"{mark}: {key} is given twice")
            inner = (*loc, key)
            marks[inner] = mark
            result[key] = _value(value_node, inner, path, marks)
        return result
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            inner = (*loc, index)
            marks[inner] = f"{path}:{item.start_mark.line + 1}"
            items.append(_value(item, inner, path, marks))
        return items
    return _scalar(node, path)


def _scalar(node: yaml.Node, path: Path) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise ProfileError(f"{path}:{node.start_mark.line + 1}: {_yaml_problem(error)}") from error


def _yaml_place(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{path}:{mark.line + 1}" if mark is not None else str(path)


def _yaml_problem(error: Exception) -> str:
    return getattr(error, "problem", None) or str(error).splitlines()[0]
