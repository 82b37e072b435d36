"""What the composer reads of a source file, with nothing but the interpreter's own `ast`: see `compose_script`."""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import json
import re
import textwrap
import tokenize
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Fields that say nothing about meaning, or that not every Python version has.
IGNORED = {"ctx", "kind", "type_comment"}


class Refused(Exception):
    """A patch cannot be composed; the message names patch, function and reason."""


class Source(NamedTuple):
    lines: List[str]
    tree: ast.Module
    encoding: str


def normal_form(node: Any) -> Any:
    """An AST as nested lists without positions, docstrings and empty fields: the same on every Python."""
    if isinstance(node, ast.AST):
        scope = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        documented = scope and ast.get_docstring(node, clean=False) is not None  # type: ignore[arg-type]
        fields = []
        for name, value in ast.iter_fields(node):
            kept = value[1:] if documented and name == "body" else value
            if isinstance(node, ast.JoinedStr):  # Python 3.12 puts an empty text after a nested format
                kept = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
            if name not in IGNORED and kept is not None and kept != []:
                fields.append([name, normal_form(kept)])
        return [type(node).__name__, fields]
    if isinstance(node, list):
        return [normal_form(item) for item in node]
    return [type(node).__name__, ascii(node)]


def function_sha256(function: ast.AST) -> str:
    """sha256 of a function's normal form."""
    return hashlib.sha256(json.dumps(normal_form(function)).encode()).hexdigest()


def read_source(content: bytes, file: str) -> Source:
    """Text in the encoding that the file declares. Raises Refused for bytes that Python would not read either."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:  # ValueError: not in its encoding, or a null byte
        raise Refused(f"{file} does not parse: {error}") from error
    return Source(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text), tree, encoding)


def find_function(tree: ast.Module, qualified: str) -> Optional[ast.AST]:
    """`Class.method` or `function`, the last definition of that name as Python would see it."""
    scope: ast.AST = tree
    for name in qualified.split("."):
        found: Optional[ast.AST] = None
        for node in getattr(scope, "body", []):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
                found = node
        if found is None:
            return None
        scope = found
    return scope


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.walk(node):
        if isinstance(child, ast.stmt) and child is not node:
            yield child


def find_anchor(function: ast.AST, anchor: str, where: str) -> ast.stmt:
    wanted = [normal_form(node) for node in ast.parse(textwrap.dedent(anchor)).body]
    if len(wanted) != 1:
        raise Refused(f"{where}: an anchor is one statement, not {anchor!r}")
    hits = [node for node in statements(function) if normal_form(node) == wanted[0]]
    if len(hits) != 1:
        raise Refused(f"{where}: the anchor `{anchor.strip()}` matches {len(hits)} times, not once")
    return hits[0]


def missing_names(tree: ast.Module, function: ast.AST, edits: List[Dict[str, str]]) -> List[str]:
    """What the code to insert reads and a fork has renamed: it would compile, and then raise NameError."""
    there = bound(tree, deep=False) | bound(function, deep=True) | set(dir(builtins))
    missing: Set[str] = set()
    for edit in edits:
        try:
            code = ast.parse(textwrap.dedent(edit["code"]))
        except SyntaxError:  # compiling the result says it better
            continue
        used = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        missing |= used - there - bound(code, deep=True)
    return [] if "*" in there else sorted(name for name in missing if not name.startswith("_ddtool_"))


def bound(node: ast.AST, deep: bool) -> Set[str]:
    """Names that assignments, arguments, imports and definitions bind; `deep`: in nested scopes, too."""
    names: Set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        elif isinstance(child, ast.arg):
            names.add(child.arg)
        elif isinstance(child, ast.alias):
            names.add((child.asname or child.name).partition(".")[0])
        elif isinstance(child, SCOPES):
            names.add(child.name)
        if deep or not isinstance(child, SCOPES):
            names |= bound(child, deep)
    return names
