"""Compose patched sources, in the *engine's* Python: text given to `python -I -S -c`, JSON in and out.

Only that Python's `ast` reads the engine's syntax, and "it compiles" must mean its compiler. So this file
imports nothing of ddtool, and is also importable for tests.

    stdin   [{file, content: base64, patches: [{name, targets: [TARGET]}]}]
            TARGET {file, function, append, ast_sha256, edits: [{anchor, place, code}]}
    stdout  [{content: base64, unknown: [{patch, function, ast_sha256, source}]} | {error}]
"""

from __future__ import annotations

import ast
import base64
import codecs
import hashlib
import io
import itertools
import json
import re
import sys
import textwrap
import tokenize
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

PLACES = ("before", "after", "replace")
# Fields that say nothing about meaning, or that not every Python version has.
IGNORED = {"ctx", "kind", "type_comment"}


class Refused(Exception):
    """A patch cannot be composed; the message names patch, function and reason."""


class Edit(NamedTuple):
    first: int  # 0-based line; insertions have first == last
    last: int
    patch: str
    text: str


class Source(NamedTuple):
    lines: List[str]
    tree: ast.Module
    encoding: str
    bom: bool


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
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    text = content.decode(encoding)
    bom = content.startswith(codecs.BOM_UTF8)
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        raise Refused(f"{file} does not parse: {error}") from error
    return Source(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text), tree, encoding, bom)


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


def plan_edit(source: Source, function: ast.AST, edit: Dict[str, str], patch: str, where: str) -> Edit:
    node = find_anchor(function, edit["anchor"], where)
    decorators = [one.lineno for one in getattr(node, "decorator_list", [])]
    first, last = min([node.lineno, *decorators]) - 1, node.end_lineno or node.lineno
    head = source.lines[first].encode()[: node.col_offset].decode()
    tail = source.lines[last - 1].encode()[node.end_col_offset or 0 :].decode().strip()
    if head.strip() or (tail and not tail.startswith("#")):
        raise Refused(f"{where}: the anchor `{edit['anchor'].strip()}` shares its line with other code")
    place = edit["place"]
    if place not in PLACES:
        raise Refused(f"{where}: place must be one of {', '.join(PLACES)}, not {place!r}")
    text = textwrap.indent(textwrap.dedent(edit["code"]).strip("\n"), head)
    if place == "before":
        return Edit(first, first, patch, text)
    return Edit(last if place == "after" else first, last, patch, text)


def choose(targets: List[Dict[str, Any]], function_hash: str) -> Tuple[Dict[str, Any], bool]:
    """Of one function's alternative targets the one that knows it, else the last, as unknown."""
    for target in targets:
        if function_hash in target["ast_sha256"].values():
            return target, True
    return targets[-1], False


def plan_patch(source: Source, file: str, patch: Dict[str, Any]) -> Tuple[List[Edit], List[Dict[str, str]]]:
    """The edits of one patch on one file, and the functions whose version it does not know."""
    by_function: Dict[Optional[str], List[Dict[str, Any]]] = {}
    for target in patch["targets"]:
        by_function.setdefault(target["function"], []).append(target)
    edits, unknown, appended = [], [], []
    for qualified, targets in by_function.items():
        where = f"{patch['name']}: {qualified} in {file}"
        function = find_function(source.tree, qualified or "")
        if function is None:
            raise Refused(f"{where}: there is no such function")
        found = function_sha256(function)
        target, known = choose(targets, found)
        edits += [plan_edit(source, function, edit, patch["name"], where) for edit in target["edits"]]
        if not known:
            text = ast.get_source_segment("".join(source.lines), function) or ""
            unknown.append(
                {"patch": patch["name"], "function": qualified, "ast_sha256": found, "source": text}
            )
        if target.get("append") and target["append"] not in appended:
            appended.append(target["append"])
    end = len(source.lines)
    edits += [Edit(end, end, patch["name"], "\n\n" + text.strip("\n")) for text in appended]
    return edits, unknown


def apply(source: Source, edits: List[Edit]) -> bytes:
    """Lines with the edits in canonical order: position, then patch name. Raises Refused when two collide."""
    ordered = sorted(edits, key=lambda edit: (edit.first, edit.last, edit.patch))
    for one, other in itertools.permutations(ordered, 2):
        if _collide(one, other):
            names = " and ".join(sorted({one.patch, other.patch}))
            raise Refused(f"{names}: these edits change the same lines; enable one patch of them only")
    newline = _newline(source.lines)
    out: List[str] = []
    position = 0
    for edit in ordered:
        out += source.lines[position : edit.first]
        if out and not out[-1].endswith(("\n", "\r")):
            out[-1] += newline
        out += [line + newline for line in edit.text.split("\n")]
        position = edit.last
    out += source.lines[position:]
    # "utf-8-sig", which detect_encoding names for a file with a BOM, writes the BOM back
    return "".join(out).encode(source.encoding)


def _collide(one: Edit, other: Edit) -> bool:
    """`one` replaces lines that `other` replaces too, or inserts into."""
    if other.first == other.last:
        return one.first < other.first < one.last
    return one.first <= other.first < one.last


def _newline(lines: List[str]) -> str:
    crlf = sum(line.endswith("\r\n") for line in lines)
    return "\r\n" if crlf * 2 > len(lines) else "\n"


def compose(file: str, content: bytes, patches: List[Dict[str, Any]]) -> Tuple[bytes, List[Dict[str, str]]]:
    """baseline bytes + patches → patched bytes, independent of the patches' order. Raises Refused."""
    source = read_source(content, file)
    edits: List[Edit] = []
    unknown: List[Dict[str, str]] = []
    for patch in sorted(patches, key=lambda one: one["name"]):
        more, not_known = plan_patch(source, file, patch)
        edits += more
        unknown += not_known
    composed = apply(source, edits) if edits else content
    try:
        compile(composed, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        names = ", ".join(patch["name"] for patch in patches)
        raise Refused(f"{file} does not compile with {names}: {error}") from error
    return composed, unknown


def main() -> None:
    answers: List[Dict[str, Any]] = []
    for job in json.load(sys.stdin):
        try:
            content, unknown = compose(job["file"], base64.b64decode(job["content"]), job["patches"])
            answers.append({"content": base64.b64encode(content).decode(), "unknown": unknown})
        except Refused as refused:
            answers.append({"error": str(refused)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
