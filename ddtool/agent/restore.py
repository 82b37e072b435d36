"""Plan: every managed file back to its baseline, to a named baseline, or to the wheel's bytes."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

from . import ledger, objects
from .disk import sha256
from .errors import Drift, UsageError
from .managed import Managed, Plan
from .registry import Context

BASELINE, WHEEL = "baseline", "wheel"


def plan_restore(
    ctx: Context,
    *,
    venv: str,
    to: str = BASELINE,
    wheel_files: Optional[Mapping[str, bytes]] = None,
    force: bool = False,
) -> Plan:
    """`to`: `baseline` (each file's recorded one), `wheel`, or the name of an adopted baseline. Changes nothing.

    Raises Drift for foreign files (unless forced), UsageError when `to` cannot be had.
    """
    managed = Managed(ctx, venv, wheel_files)
    managed.retire_lost()
    if to == WHEEL and managed.install.unmanaged:
        raise UsageError(
            f"cannot restore to the wheel: {managed.install.unmanaged}",
            "`ddtool restore` goes back to the adopted baseline",
        )
    wanted = _wanted(managed, to)
    for name, content in wanted.items():
        before = managed.state(name)
        if managed.found(name) != sha256(content):
            managed.guard(name, force)
        if to == WHEEL:
            managed.ledger.files.pop(name, None)
        else:
            _clear(managed, name, content)
        managed.write(name, content, before)
    if to == WHEEL:
        _note_what_stays(managed)
    return managed.done()


def _wanted(managed: Managed, to: str) -> Dict[str, bytes]:
    entries = managed.ledger.files
    if to == BASELINE:
        managed.refuse_half_upgraded(sorted(entries))
        return {name: objects.get(managed.ctx, entries[name]["baseline"]["sha"]) for name in sorted(entries)}
    if to != WHEEL:
        chosen = managed.ledger.baselines.get(to)
        if chosen is None:
            known = ", ".join(["baseline", "wheel", *sorted(managed.ledger.baselines)])
            raise UsageError(f"there is no baseline {to!r} on this host", f"known: {known}")
        if chosen["adopted"]["version"] != managed.install.version:
            raise UsageError(
                f"the baseline {to} is of {managed.install.dist} {chosen['adopted']['version']}; this host has "
                f"{managed.install.version}",
                "adopt a baseline of the new version: `ddtool baseline adopt NAME`",
            )
        return {name: objects.get(managed.ctx, sha) for name, sha in sorted(chosen["files"].items())}
    wanted, unknown = {}, []
    for name in sorted(entries):
        if name in managed.install.record:
            clean = managed.clean(name)
            if clean is None:
                unknown.append(name)
            else:
                wanted[name] = clean
    if unknown:
        raise Drift(
            f"the wheel's bytes are not on this host: {', '.join(unknown)}",
            f"pass the wheel: --wheel {managed.install.dist}-{managed.install.version}-….whl",
        )
    return wanted


def _clear(managed: Managed, name: str, content: bytes) -> None:
    """The entry without patches; an entry whose baseline is the wheel's is not needed any more."""
    entry = managed.ledger.files.get(name)
    sha = sha256(content)
    if entry is None or entry["baseline"]["sha"] != sha:
        managed.ledger.files[name] = adopted_entry(managed, _name_of(managed, name, sha), name, sha)
    elif entry["baseline"]["kind"] == "wheel":
        del managed.ledger.files[name]
    else:
        entry.update(patches=[], sha=sha)


def _name_of(managed: Managed, name: str, sha: str) -> str:
    return next(key for key, item in managed.ledger.baselines.items() if item["files"].get(name) == sha)


def adopted_entry(managed: Managed, baseline: str, name: str, sha: str) -> ledger.Json:
    """The ledger entry of a file whose clean version is the one adopted as `baseline`."""
    install = managed.install
    about: ledger.Json = {
        "id": f"adopted:{baseline}",
        "kind": "adopted",
        "name": baseline,
        "sha": sha,
        "dist": install.dist,
        "version": install.version,
        "record": install.record.get(name),
    }
    return {"baseline": about, "patches": [], "sha": sha}


def _note_what_stays(managed: Managed) -> None:
    """Files beyond the ledger's reach: the operator reads that they still differ."""
    stays: List[str] = []
    for name in sorted(managed.ledger.files):
        managed.ledger.retire(name, "restored to the wheel, which has no such file")
        stays.append(f"{name}: not part of the wheel, left as it is")
    managed.plan.notes += stays
