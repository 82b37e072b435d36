"""Baselines: which bytes count as clean in an installation that somebody patched by hand."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from . import ledger, objects, record
from .disk import digest
from .errors import Drift, UsageError
from .managed import Managed, Plan, backups_of, unified
from .registry import Context
from .restore import BASELINE, WHEEL, adopted_entry

Json = Dict[str, Any]
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
OURS_MARK = b"_ddtool_"
# What people leave behind. `print(` counts only where the wheel is known not to have the line.
MARKER = re.compile(r"\b[A-Z0-9_]*(?:DIAG|DEBUG)[A-Z0-9_]*\b|\bbreakpoint\(\)|\bi?pdb\b|\bset_trace\(")
PRINTED = re.compile(r"^\s*print\(")


def plan_adopt(
    ctx: Context, *, venv: str, name: str, files: Optional[Sequence[str]] = None, who: str
) -> Plan:
    """Record what is there now as the clean version called `name`; the files themselves stay untouched.

    `files`: relative names (`sglang/srt/…`); None: all that differ from the wheel or are not in it.
    Raises UsageError for a bad name or nothing to adopt, Drift for files that carry an enabled patch.
    """
    if not NAME.match(name) or name in (BASELINE, WHEEL):
        raise UsageError(
            f"{name!r} cannot name a baseline", "use letters, digits, `.`, `_`, `-`; not baseline or wheel"
        )
    managed = Managed(ctx, venv)
    managed.retire_lost()
    chosen = _chosen(managed, files)
    patched = [
        file for file in chosen if managed.state(file) == ledger.OURS or OURS_MARK in managed.content(file)
    ]
    if patched:
        raise Drift(
            f"these carry a diagnostic of ddtool, so they are not clean: {', '.join(patched)}",
            "`ddtool restore` first; then adopt",
        )
    shas: Dict[str, str] = {}
    for file in chosen:
        before = managed.state(file)
        shas[file] = managed.keep(managed.content(file))
        managed.ledger.retire(file, f"adopted anew as {name}")
        managed.ledger.files[file] = adopted_entry(managed, name, file, shas[file])
        managed.plan.summary.append(managed.row(file, before, shas[file]))
        managed.plan.notes += [f"{file}:{item['line']}: {item['text']}" for item in markers(managed, file)]
    adopted = {"who": who, "when": ledger.now(), "version": managed.install.version}
    known = managed.ledger.baselines.get(name, {"files": {}})
    managed.ledger.baselines[name] = {"files": {**known["files"], **shas}, "adopted": adopted}
    return managed.done()


def _chosen(managed: Managed, files: Optional[Sequence[str]]) -> List[str]:
    if files is None:
        if managed.install.unmanaged:
            raise UsageError(
                f"{managed.install.unmanaged}, so name the files to adopt", "ddtool baseline adopt NAME FILE…"
            )
        chosen = [name for name in differing(managed) if managed.state(name) != ledger.OURS]
        if not chosen:
            raise UsageError(
                "every file is as in the wheel: there is nothing to adopt", "`ddtool baseline list`"
            )
        return chosen
    missing = [name for name in files if managed.found(name) is None]
    if missing:
        raise UsageError(f"not there: {', '.join(missing)}", f"names are relative to {managed.install.root}")
    return sorted(set(files))


def differing(managed: Managed) -> List[str]:
    """Source files that are not the wheel's: changed or added. Backups are nobody's source."""
    changed = [name for name, state in record.verify(managed.install).items() if state == record.CHANGED]
    return sorted(changed + [name for name in record.added(managed.install) if name.endswith(".py")])


def listing(ctx: Context, venv: str) -> Json:
    """`{site, version, unmanaged, baselines, files, differing, backups}`; reads only."""
    managed = Managed(ctx, venv)
    install, book = managed.install, managed.ledger
    return {
        "site": str(install.root),
        "version": install.version,
        "unmanaged": install.unmanaged,
        "baselines": [{"name": name, **item} for name, item in sorted(book.baselines.items())],
        "files": [
            {"file": name, "state": managed.state(name), "baseline": entry["baseline"]["id"]}
            for name, entry in sorted(book.files.items())
        ],
        "differing": [] if install.unmanaged else differing(managed),
        "backups": list(_backups(managed)),
    }


def _backups(managed: Managed) -> Iterator[Json]:
    """`.bak` files lying about, and whether they hold the wheel's bytes."""
    for name in managed.install.files():
        path = managed.install.path(name)
        if path.suffix == ".py":
            for backup in backups_of(path):
                clean = managed.install.record.get(name)
                yield {
                    "file": str(backup),
                    "of": name,
                    "is_wheel": clean is not None and digest(backup) == clean,
                }


def show(
    ctx: Context, venv: str, name: Optional[str] = None, wheel_files: Optional[Mapping[str, bytes]] = None
) -> Json:
    """A baseline's files (without `name`: what `adopt` would take) with their diff against the wheel and leftovers."""
    managed = Managed(ctx, venv, wheel_files)
    if name is None:
        shas: Dict[str, Optional[str]] = dict.fromkeys(
            [] if managed.install.unmanaged else differing(managed)
        )
    elif name in managed.ledger.baselines:
        shas = dict(managed.ledger.baselines[name]["files"])
    else:
        known = ", ".join(sorted(managed.ledger.baselines)) or "none adopted yet"
        raise UsageError(f"there is no baseline {name!r} on this host", f"known: {known}")
    return {
        "name": name,
        "version": managed.install.version,
        "files": [_shown(managed, f, shas[f]) for f in sorted(shas)],
    }


def _shown(managed: Managed, file: str, sha: Optional[str]) -> Json:
    content = managed.content(file) if sha is None else objects.get(managed.ctx, sha)
    clean = managed.clean(file)
    in_wheel = file in managed.install.record
    return {
        "file": file,
        "state": managed.state(file),
        "sha256": sha or managed.found(file),
        "in_wheel": in_wheel,
        "diff": None if clean is None else unified(clean, content, file),
        "no_diff": "the wheel's bytes are not on this host: pass --wheel FILE"
        if in_wheel and clean is None
        else None,
        "markers": list(leftovers(content, clean)),
    }


def markers(managed: Managed, file: str) -> List[Json]:
    return list(leftovers(managed.content(file), managed.clean(file)))


def leftovers(content: bytes, clean: Optional[bytes]) -> Iterator[Json]:
    """Debugging lines that the wheel does not have: `{line, text}`, 1-based."""
    known = set() if clean is None else set(clean.splitlines())
    for number, raw in enumerate(content.splitlines(), 1):
        if raw in known:
            continue
        text = raw.decode("utf-8", "replace")
        if MARKER.search(text) or (clean is not None and PRINTED.match(text)):
            yield {"line": number, "text": text.strip()[:200]}


def names_to_fetch(ctx: Context, venv: str) -> List[str]:
    """Files whose clean bytes only the wheel has: what the operator's `--wheel FILE` should bring."""
    managed = Managed(ctx, venv)
    names = set(managed.ledger.files)
    if not managed.install.unmanaged:
        names |= set(differing(managed))
    return sorted(name for name in names if name in managed.install.record and managed.clean(name) is None)
