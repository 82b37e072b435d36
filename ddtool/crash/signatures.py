"""Signatures of failures, read from `crash_signatures/*.yaml`. Adding one needs no code.

A signature says by which lines a failure is known, what must or must not stand around them, and what it means. Its
regular expressions are RE2's (no look-around, no back references), since the prefilter for long logs uses them too.

One file has a `layer`, its `categories`, `sets` of expressions that any file may use as `@name`, and `signatures`:

    id, category, subcode    the verdict; `{name}` in a subcode is a named group of the match
    role                     root (default), cascade, confirmation, or advisory: never a cause, whatever else matches
    tier                     where the line comes from; see TIERS
    weight                   which signature speaks for a line that several match (50; under 30 is a fallback)
    match                    a line matches if one of these does ...
    unless, only             ... and none of `unless`, and, if given, one of `only`
    where: error             the line must be the error line of an exception
    requires, forbids        scope -> expressions of which one must (none may) match there; see SCOPES
    phase                    the phases in which it counts
    numbers                  bounds for the groups `a` and `b`: smallest_at_least, gap_at_least, gap_at_most, and
                             context_gap_at_most: of the nearer one to the context length, if the log says that
    batches_at_most          it counts only before that many batches were served
    subcodes                 finer sub-codes: `match`, `in` (a scope, else the line), `and`, `subcode`; the first wins
    cause, remedy, next      one sentence (with `{line}` or named groups), what to do, the next command
    confidence, missing      high (default), medium or low; what else should be collected
    loss                     it reports that a rank was lost. What is said once it is clear which (`gone`): the first
                             with a `match` on the line gives the `missing`, `remedy` and `next` (with `{rank}`) and
                             the sentence: `silent` or, where SGLang named the rank, `named` (with `{code}` too)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any, Literal

from ddtool.crash.needles import needles
from ddtool.data import data_folder
from ddtool.errors import DdtoolError

SCHEMA = "ddtool.crash-signatures/1"
COMPILED = "compiled.json"

Role = Literal["root", "cascade", "confirmation", "advisory"]
Tier = Literal["exec", "kernel", "native", "exception", "child", "hang", "messenger", "exit"]

# Nearest to the cause first. Within the same second the nearer one is the cause, because parents print the
# consequence before a child prints the cause. Messengers and exits count only if nothing else is there.
TIERS: tuple[Tier, ...] = ("exec", "kernel", "native", "exception", "child", "hang", "messenger", "exit")

# line: the line itself · block: its traceback with all causes, or its surroundings · innermost: the last frame
# before · after · attempt: lines of the attempt · near-before: the 12 lines before · stacks: the 60 lines behind
SCOPES = ("line", "block", "innermost", "before", "after", "attempt", "near-before", "stacks")

FALLBACK = 30  # a signature lighter than this only says that something failed

_ROLES = ("root", "cascade", "confirmation", "advisory")
_NUMBERS = {"smallest_at_least", "gap_at_least", "gap_at_most", "context_gap_at_most"}


@dataclass(frozen=True, slots=True)
class Category:
    """A leaf of the taxonomy."""

    name: str
    layer: str
    meaning: str
    remedy: str
    next: str


@dataclass(frozen=True, slots=True)
class Finer:
    """A sub-code for some of the lines that a signature matches."""

    match: str
    subcode: str
    scope: str = "line"
    also: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """What a report of a lost rank says once it is clear which; without a sentence for the way, as before."""

    match: str
    missing: tuple[str, ...]
    remedy: str
    next: str
    silent: str = ""
    named: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    id: str
    match: tuple[str, ...]
    role: Role = "root"
    category: str | None = None
    subcode: str | None = None
    tier: Tier = "exception"
    weight: int = 50
    unless: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    where: Literal["line", "error"] = "line"
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forbids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    phase: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    batches_at_most: int | None = None
    subcodes: tuple[Finer, ...] = ()
    cause: str = ""
    remedy: str = ""
    next: str = ""
    confidence: Literal["high", "medium", "low"] = "high"
    missing: tuple[str, ...] = ()
    loss: tuple[Loss, ...] = ()

    @property
    def is_fallback(self) -> bool:
        return self.weight < FALLBACK


@dataclass(frozen=True)
class Catalogue:
    categories: Mapping[str, Category]
    signatures: tuple[Signature, ...]
    known_needles: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # of expressions, worked out before

    def without(self, ids: Iterable[str]) -> Catalogue:
        """The same without some signatures, for measuring how much hangs on them."""
        gone = set(ids)
        kept = tuple(each for each in self.signatures if each.id not in gone)
        return replace(self, signatures=kept)

    def patterns(self) -> list[str]:
        """Every expression that a line can match, for the prefilter of long logs."""
        wanted = (
            each for each in self.signatures if each.role != "advisory"
        )  # noise is no reason to keep a line
        return list(dict.fromkeys(pattern for each in wanted for pattern in each.match))

    @cached_property
    def by_needle(self) -> Mapping[str, tuple[tuple[int, str], ...]]:
        """Literal in lower case -> (index of a signature, expression) that can match only lines with it; under
        "" those that can match any line."""
        found: dict[str, list[tuple[int, str]]] = {}
        for index, each in enumerate(self.signatures):
            for pattern in each.match:
                known = self.known_needles.get(pattern)
                for needle in (needles(pattern) if known is None else known) or ("",):
                    found.setdefault(needle, []).append((index, pattern))
        return {key: tuple(value) for key, value in found.items()}


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def catalogue() -> Catalogue:
    """The shipped signatures. Raises DdtoolError naming file and signature when one is not valid."""
    folder = data_folder("crash_signatures")
    sources = {path.name: path.read_bytes() for path in sorted(folder.glob("*.yaml"))}
    try:
        made = json.loads((folder / COMPILED).read_bytes())
        if made["sha256"] == digest(sources):
            return replace(of_files(made["files"]), known_needles=made["needles"])
    except (OSError, ValueError, KeyError):
        pass  # it is read from what it is made of
    return of_files(parse(sources))


def compiled_form(sources: Mapping[str, bytes]) -> str:
    """What `catalogue` reads instead of the YAML (which costs 50 ms) as long as it was made of exactly these bytes."""
    parsed = parse(sources)
    literals = {pattern: needles(pattern) for each in of_files(parsed).signatures for pattern in each.match}
    return (
        json.dumps({"sha256": digest(sources), "files": parsed, "needles": literals}, separators=(",", ":"))
        + "\n"
    )


def digest(sources: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name in sorted(sources):
        whole.update(name.encode() + b"\0" + hashlib.sha256(sources[name]).digest())
    return whole.hexdigest()


def parse(sources: Mapping[str, bytes]) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parsed = {}
    for name, source in sources.items():
        try:
            parsed[name] = yaml.load(source, Loader=loader)  # noqa: S506  a safe loader, in C where there is one
        except yaml.YAMLError as error:
            raise DdtoolError(
                f"crash_signatures/{name} is no YAML: {error}", hint="correct the file"
            ) from error
    return parsed


def of_files(parsed: Mapping[str, Any]) -> Catalogue:
    """Parsed files by name -> catalogue; everything that is not as the schema says is an error."""
    sets: dict[str, list[str]] = {}
    categories: dict[str, Category] = {}
    for name, file in parsed.items():
        if not isinstance(file, dict) or file.get("schema") != SCHEMA:
            raise _wrong(name, f"schema is not {SCHEMA}")
        _known(name, "the file", file, {"schema", "layer", "categories", "sets", "signatures"})
        sets |= file.get("sets", {})
        for key, data in file.get("categories", {}).items():
            _known(name, key, data, {"meaning", "remedy", "next"})
            categories[key] = Category(key, file["layer"], **data)
    found = [
        signature
        for name, file in parsed.items()
        for signature in _signatures(name, file.get("signatures", []), sets)
    ]
    _consistent(found, categories)
    return Catalogue(categories, tuple(found))


def _signatures(name: str, listed: list[Any], sets: Mapping[str, list[str]]) -> Iterator[Signature]:
    allowed = {item.name for item in fields(Signature)}
    for data in listed:
        what = str(data.get("id"))
        _known(name, what, data, allowed)
        values: dict[str, Any] = {"role": data.get("role", "root"), **data}
        for key in ("match", "unless", "only"):
            values[key] = _expressions(name, what, data.get(key, ()), sets)
        for key in ("requires", "forbids"):
            _known(name, f"{what}: {key}", data.get(key, {}), set(SCOPES))
            values[key] = {
                scope: _expressions(name, what, listed, sets) for scope, listed in data.get(key, {}).items()
            }
        _known(name, f"{what}: numbers", data.get("numbers", {}), _NUMBERS)
        values["subcodes"] = tuple(_finer(name, what, item) for item in data.get("subcodes", ()))
        values["phase"] = tuple(data.get("phase", ()))
        values["missing"] = tuple(data.get("missing", ()))
        values["loss"] = tuple(_loss(name, what, item) for item in data.get("loss", ()))
        if not values["match"] or values["role"] not in _ROLES or values.get("tier", "exit") not in TIERS:
            raise _wrong(name, f"{what}: it needs `match`, a known role and a known tier")
        yield Signature(**values)


def _finer(name: str, what: str, data: Mapping[str, Any]) -> Finer:
    _known(name, f"{what}: subcodes", data, {"match", "in", "and", "subcode"})
    scope = data.get("in", "line")
    if scope not in SCOPES:
        raise _wrong(name, f"{what}: unknown scope {scope}")
    return Finer(data["match"], data["subcode"], scope, data.get("and"))


def _loss(name: str, what: str, data: Mapping[str, Any]) -> Loss:
    _known(name, f"{what}: loss", data, {item.name for item in fields(Loss)})
    return Loss(**{**data, "missing": tuple(data["missing"])})


def _expressions(
    name: str, what: str, listed: Iterable[str], sets: Mapping[str, list[str]]
) -> tuple[str, ...]:
    found: list[str] = []
    for item in listed:
        if not item.startswith("@"):
            found.append(item)
        elif item[1:] in sets:
            found += sets[item[1:]]
        else:
            raise _wrong(name, f"{what}: there is no set {item}")
    return tuple(found)


def _consistent(found: list[Signature], categories: Mapping[str, Category]) -> None:
    ids = [each.id for each in found]
    for each in found:
        if ids.count(each.id) > 1:
            raise _wrong(each.id, "two signatures have this id")
        if each.role == "root" and (each.category not in categories or not each.cause or not each.remedy):
            raise _wrong(each.id, "a root needs a category that is described, a cause and a remedy")


def _known(name: str, what: str, data: Mapping[str, Any], allowed: set[str]) -> None:
    for key in data:
        if key not in allowed:
            raise _wrong(name, f"{what} has the unknown key {key!r} (known: {', '.join(sorted(allowed))})")


def _wrong(name: str, why: str) -> DdtoolError:
    return DdtoolError(
        f"crash_signatures: {name}: {why}", hint="ddtool/crash/signatures.py says what a file may hold"
    )
