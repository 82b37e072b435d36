"""Read, merge and check a profile's files."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from ddtool.errors import ProfileError
from ddtool.profile.marked_yaml import Loc, Marked, read
from ddtool.profile.schema import Profile
from ddtool.profile.search import find

FREE_SECTIONS = ("server_args", "env")  # keys are SGLang's or the user's; null takes an inherited one away
ONE_HOST = ("host", "hosts", "nodes", "nnodes", "replicas")


def load(name_or_path: str, overrides: Sequence[str] = (), search: Sequence[Path] | None = None) -> Profile:
    """The profile of that name or file, with its base and `--set a.b=value` overrides merged in.

    Raises ProfileError naming file and line, or the override, for everything that the schema does not allow.
    Says nothing on whether the profile can work: see `ddtool.profile.validate`.
    """
    path = find(name_or_path, search)
    marked = _with_base(path, search)
    for override in overrides:
        _override(marked, override)
    for section in FREE_SECTIONS:
        values = marked.data.get(section)
        if isinstance(values, dict):
            marked.data[section] = {key: value for key, value in values.items() if value is not None}
    for key in ("name", "source"):
        if key in marked.data:
            raise ProfileError(f"{marked.where((key,))}: {key}: unknown key; a profile is named by its file")
    try:
        return Profile.model_validate({**marked.data, "name": path.stem, "source": str(path)})
    except ValidationError as error:
        raise ProfileError(
            "\n".join(_describe(problem, marked) for problem in error.errors(include_input=False)),
            why=f"the profile {path.stem} does not fit the schema",
            hint="docs/profiles.md lists every key",
        ) from None


def _with_base(path: Path, search: Sequence[Path] | None) -> Marked:
    child = _read(path)
    base_name = child.data.pop("extends", None)
    if base_name is None:
        return child
    where = child.where(("extends",))
    if not isinstance(base_name, str):
        raise ProfileError(f"{where}: extends: the name of one profile")
    base_path = path.parent / base_name if "/" in base_name else _sibling_or_named(path, base_name, search)
    if base_path.resolve() == path.resolve():
        raise ProfileError(f"{where}: a profile cannot extend itself")
    base = _read(base_path)
    if "extends" in base.data:
        raise ProfileError(
            f"{where}: {base_path.stem} itself extends {base.data['extends']}",
            why="extends goes one level deep, so that a value's origin is one look away",
            hint=f"extend {base.data['extends']} and repeat what {base_path.stem} changes",
        )
    merge(base.data, child.data)
    base.marks.update(child.marks)
    return base


def _sibling_or_named(path: Path, name: str, search: Sequence[Path] | None) -> Path:
    """A base beside the file comes first: a copied pair of profiles must not pick up another base."""
    for suffix in (".yaml", ".yml"):
        sibling = path.with_name(name + suffix)
        if sibling.is_file() and sibling.resolve() != path.resolve():
            return sibling
    return find(name, search)


def _read(path: Path) -> Marked:
    """One file, flags in SGLang's spelling with dashes, so that `extends` and `--set` meet on one key."""
    marked = read(path)
    flags = marked.data.get("server_args")
    if isinstance(flags, dict):
        marked.data["server_args"] = {_dashed(key): value for key, value in flags.items()}
        for loc in [loc for loc in marked.marks if len(loc) > 1 and loc[0] == "server_args"]:
            dashed = ("server_args", _dashed(str(loc[1])), *loc[2:])
            marked.marks[dashed] = marked.marks[loc]
    return marked


def _dashed(flag: str) -> str:
    return flag.removeprefix("--").replace("_", "-")


def merge(base: dict[str, Any], child: dict[str, Any]) -> None:
    """Put `child` into `base`: sections merge key by key; scalars and lists are replaced."""
    for key, value in child.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value


def parse_override(override: str) -> tuple[list[str], Any]:
    """`a.b=value` as (["a", "b"], value), the value read as YAML. ProfileError for any other form."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ProfileError(
            f"--set {path}: not of the form section.key=value", hint="--set speculative.budget=16"
        )
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ProfileError(f"--set {path}: the value is not YAML") from error
    if keys[0] == "server_args" and len(keys) > 1:
        keys[1] = _dashed(keys[1])
    return keys, value


def _override(marked: Marked, override: str) -> None:
    keys, value = parse_override(override)
    if keys[0] == "extends":
        raise ProfileError("--set extends: a base belongs into a file")
    target = marked.data
    for key in keys[:-1]:
        inner = target.get(key)
        if inner is None:
            inner = target[key] = {}
        if not isinstance(inner, dict):
            raise ProfileError(f"--set {'.'.join(keys)}: {key} has no keys below it")
        target = inner
    target[keys[-1]] = value
    marked.marks[tuple(keys)] = f"--set {'.'.join(keys)}"


def _describe(problem: Any, marked: Marked) -> str:
    """One line: where, which key, what is wrong. Never the value: it may be a secret written by mistake."""
    loc: Loc = tuple(problem["loc"]) + tuple(problem.get("ctx", {}).get("loc", ()))
    known, model = _known_part(loc)
    name = ".".join(str(part) for part in known)
    where = marked.where(known)
    if problem["type"] == "extra_forbidden":
        return f"{where}: {name}: {_unknown_key(str(known[-1]), model)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {name}: {message}" if name else f"{where}: {message}"


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    if key in ONE_HOST:
        return (
            "unknown key; a profile holds no host and a deploy goes to one host: use --host, DDTOOL_HOST or "
            "`ddtool profile bind NAME HOST` (for several hosts, a shell loop)"
        )
    fields = [field for field in model.model_fields if field not in ("name", "source")]
    near = difflib.get_close_matches(key, fields, 1, cutoff=0.5)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(fields)}"


def _known_part(loc: Loc) -> tuple[Loc, type[BaseModel]]:
    """`loc` without the union members that pydantic appends, and the model in which its last key stands."""
    model: type[BaseModel] = Profile
    for depth, part in enumerate(loc):
        inner = _inner_model(model, str(part))
        if inner is None:
            end = depth + 2 if part in FREE_SECTIONS and depth == 0 else depth + 1
            return loc[:end], model
        if depth + 1 < len(loc):
            model = inner
    return loc, model


def _inner_model(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    field = model.model_fields.get(key)
    if field is None:
        return None
    options: tuple[Any, ...] = (field.annotation,)
    if typing.get_origin(field.annotation) in (typing.Union, types.UnionType):
        options = typing.get_args(field.annotation)
    return next(
        (option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None
    )
