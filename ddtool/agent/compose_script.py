"""Compose patched sources, in the *engine's* Python: text given to `python -I -S -c`, JSON in and out.

Only that Python's `ast` reads the engine's syntax, and "it compiles" must mean its compiler. So this file
imports nothing of ddtool but `compose_syntax`, which travels with it.

    stdin   {version, jobs: [{file, content: base64, patches: [{name, targets: [TARGET]}]}]}
            TARGET {file, function, releases, append, ast_sha256, edits: [{anchor, place, code}]}
    stdout  {files: [{content: base64, patches: [NAME], unknown: [UNKNOWN]}]} | {error}
            UNKNOWN {patch, file, function, ast_sha256, source, edits, missing: [NAME]}

A patch may know several generations of a release, each with its own functions, in its own files. The one that fits
is chosen by the functions' hashes, for all files of the request together: a version string proves nothing.
"""

from __future__ import annotations

import ast
import base64
import itertools
import json
import sys
import textwrap
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .compose_syntax import (
    Refused,
    Source,
    find_anchor,
    find_function,
    function_sha256,
    missing_names,
    normal_form,
    read_source,
)

__all__ = [
    "Job",
    "Refused",
    "compose",
    "find_function",
    "function_sha256",
    "main",
    "normal_form",
    "read_source",
]

Target = Dict[str, Any]
Patch = Dict[str, Any]
Unknown = Dict[str, Any]

PLACES = ("before", "after", "replace")


class Edit(NamedTuple):
    first: int  # 0-based line; insertions have first == last
    last: int
    patch: str
    text: str


class Job(NamedTuple):
    """One file, its clean bytes, and the patches with their targets in it."""

    file: str
    content: bytes
    patches: List[Patch]


class Planned(NamedTuple):
    """known: how many functions have a hash that the patch names."""

    edits: Dict[str, List[Edit]]
    unknown: List[Unknown]
    known: int


class Composed(NamedTuple):
    """patches: the names of those that edit this file."""

    content: bytes
    patches: List[str]
    unknown: List[Unknown]


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


def generations(targets: List[Target], version: Optional[str]) -> List[List[Target]]:
    """The sets of targets that belong together, the installed version's first, then from the newest back.

    A version that the patch names has that one only, unless another set's functions are all known by hash.
    """
    named = list(dict.fromkeys(release for target in targets for release in target["releases"]))
    installed = (version or "").partition("+")[0]
    ordered = [installed] if installed in named else []
    ordered += [release for release in reversed(named) if release != installed]
    sets: List[List[Target]] = []
    for release in ordered:
        members = [target for target in targets if release in target["releases"]]
        if members not in sets:
            sets.append(members)
    return sets


def plan_patch(sources: Dict[str, Source], patch: Patch, version: Optional[str]) -> Planned:
    """The edits of one patch on the files of the request. Raises Refused with why the likeliest set does not fit."""
    candidates = generations(patch["targets"], version)
    claimed = any((version or "").partition("+")[0] in target["releases"] for target in patch["targets"])
    fits: List[Planned] = []
    refused: List[Refused] = []
    for number, targets in enumerate(candidates):
        try:
            planned = plan_targets(sources, patch["name"], targets)
        except Refused as error:
            refused.append(error)
            continue
        if number == 0 or not claimed or not planned.unknown:
            fits.append(planned)
    if not fits:
        raise refused[0]
    return max(fits, key=lambda planned: planned.known - len(planned.unknown))


def plan_targets(sources: Dict[str, Source], name: str, targets: List[Target]) -> Planned:
    """Every target of one generation, or Refused."""
    edits: Dict[str, List[Edit]] = {}
    unknown: List[Unknown] = []
    appended: List[Tuple[str, str]] = []
    for target in targets:
        file, qualified = target["file"], target["function"]
        where = f"{name}: {qualified} in {file}"
        source = sources[file]
        function = find_function(source.tree, qualified)
        if function is None:
            raise Refused(f"{where}: there is no such function")
        own = edits.setdefault(file, [])
        own += [plan_edit(source, function, edit, name, where) for edit in target["edits"]]
        found = function_sha256(function)
        if found not in target["ast_sha256"].values():
            unknown.append(about(name, target, found, source, function))
        code = target.get("append")
        if code and (file, code) not in appended:
            appended.append((file, code))
    for file, code in appended:
        end = len(sources[file].lines)
        edits[file].append(Edit(end, end, name, "\n\n" + code.strip("\n")))
    return Planned(edits, unknown, len(targets) - len(unknown))


def about(name: str, target: Target, found: str, source: Source, function: ast.AST) -> Unknown:
    """What the operator has to look at before a patch goes into a function that it was not checked on."""
    return {
        "patch": name,
        "file": target["file"],
        "function": target["function"],
        "ast_sha256": found,
        "source": ast.get_source_segment("".join(source.lines), function) or "",
        "edits": [{key: edit[key] for key in ("place", "anchor", "code")} for edit in target["edits"]],
        "missing": missing_names(source.tree, function, target["edits"]),
    }


def apply(source: Source, edits: List[Edit]) -> bytes:
    """Lines with the edits in canonical order: position, then patch name. Raises Refused when two collide, or when
    the file's encoding lacks a character of them."""
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
    try:
        # "utf-8-sig", which detect_encoding names for a file with a BOM, writes the BOM back
        return "".join(out).encode(source.encoding)
    except UnicodeEncodeError as error:
        names = ", ".join(sorted({edit.patch for edit in edits}))
        raise Refused(
            f"{names}: the file's encoding {source.encoding} has no {error.object[error.start]!r}"
        ) from error


def _collide(one: Edit, other: Edit) -> bool:
    """`one` replaces lines that `other` replaces too, or inserts into."""
    if other.first == other.last:
        return one.first < other.first < one.last
    return one.first <= other.first < one.last


def _newline(lines: List[str]) -> str:
    crlf = sum(line.endswith("\r\n") for line in lines)
    return "\r\n" if crlf * 2 > len(lines) else "\n"


def compose(jobs: List[Job], version: Optional[str] = None) -> List[Composed]:
    """baseline bytes + patches → patched bytes, independent of the patches' order. Raises Refused."""
    sources = {job.file: read_source(job.content, job.file) for job in jobs}
    plans = {name: plan_patch(sources, patch, version) for name, patch in sorted(whole(jobs).items())}
    answers = []
    for job in jobs:
        names = sorted(patch["name"] for patch in job.patches if job.file in plans[patch["name"]].edits)
        edits = [edit for name in names for edit in plans[name].edits[job.file]]
        content = apply(sources[job.file], edits) if edits else job.content
        try:
            compile(content, job.file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Refused(f"{job.file} does not compile with {', '.join(names)}: {error}") from error
        unknown = [item for name in names for item in plans[name].unknown if item["file"] == job.file]
        answers.append(Composed(content, names, unknown))
    return answers


def whole(jobs: List[Job]) -> Dict[str, Patch]:
    """Each patch with its targets in all files of the request."""
    patches: Dict[str, Patch] = {}
    for job in jobs:
        for patch in job.patches:
            known = patches.setdefault(patch["name"], {"name": patch["name"], "targets": []})
            known["targets"] = known["targets"] + patch["targets"]
    return patches


def main() -> None:
    request = json.load(sys.stdin)
    jobs = [Job(one["file"], base64.b64decode(one["content"]), one["patches"]) for one in request["jobs"]]
    try:
        composed = compose(jobs, request["version"])
    except Refused as refused:
        json.dump({"error": str(refused)}, sys.stdout)
        return
    files = [
        {"content": base64.b64encode(one.content).decode(), "patches": one.patches, "unknown": one.unknown}
        for one in composed
    ]
    json.dump({"files": files}, sys.stdout)
