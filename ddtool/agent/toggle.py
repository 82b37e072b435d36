"""Plan: patches on, patches off. A file is always compose(baseline, its enabled patches)."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set

from . import ledger, objects
from .compose import Composed, canonical, compose, patch_sha
from .disk import sha256
from .errors import Drift, UsageError
from .managed import Managed, Plan
from .registry import Context

Json = Dict[str, Any]


def plan_diag(
    ctx: Context,
    *,
    venv: str,
    enable: Sequence[Json],
    disable: Sequence[str],
    who: str,
    why: str = "",
    force: bool = False,
    confirm_unknown: bool = False,
) -> Plan:
    """`enable`: patch definitions; `disable`: names. Changes nothing.

    Raises Drift for foreign files (unless forced) and, unless confirmed, for functions whose version a patch does
    not know; UsageError when a patch does not fit this installation or collides with another.
    """
    managed = Managed(ctx, venv)
    managed.retire_lost()
    new = {definition["name"]: definition for definition in enable}
    records = {name: _record(definition, who, why) for name, definition in new.items()}
    targets = {name: files_of(managed, definition) for name, definition in new.items()}
    off = set(disable) | set(new)
    touched = {file for files in targets.values() for file in files}
    touched |= {
        file for file in managed.ledger.files if off & {p["name"] for p in managed.ledger.patches(file)}
    }
    states = {file: managed.state(file) for file in sorted(touched)}
    for file in states:
        managed.guard(file, force)
    managed.refuse_foreign()
    managed.refuse_half_upgraded(list(states))

    wanted = {
        file: _wanted(managed, file, off, [records[n] for n in new if file in targets[n]]) for file in states
    }
    baselines = {file: _baseline(managed, file) for file in states}
    definitions = {**{patch_sha(item): item for item in new.values()}, **_stored(managed, wanted)}
    _refuse_undefined(wanted, definitions)
    jobs = [(f, baselines[f], [definitions[p["sha"]] for p in wanted[f]]) for f in states]
    try:
        results = compose(venv, jobs, managed.install.version)
    except UsageError:
        refuse_absent(managed.install.dist, managed.install.version, new.values())
        raise
    for file, composed in zip(states, results):  # noqa: B905  strict= is Python 3.10
        _note_unknown(managed, composed, records)
        patches = [patch for patch in wanted[file] if patch["name"] in composed.patches]
        _settle(managed, file, states[file], baselines[file], patches, composed.content)
    for definition in new.values():
        managed.keep(canonical(definition))
    if managed.plan.unknown and not confirm_unknown:
        raise _unknown_version(managed.plan.unknown)
    return managed.done()


def _record(definition: Json, who: str, why: str) -> Json:
    days = definition.get("expires")
    return {
        "name": definition["name"],
        "sha": patch_sha(definition),
        "who": who,
        "when": ledger.now(),
        "why": why,
        "expires": ledger.day(days) if days else None,
    }


def files_of(managed: Managed, definition: Json) -> Set[str]:
    """The files of this installation that a patch edits. A target for other releases may have no file here."""
    version = managed.install.version
    files = {
        target["file"] for target in definition["targets"] if managed.install.path(target["file"]).is_file()
    }
    gone = {t["file"] for t in definition["targets"] if t["file"] not in files and version in t["releases"]}
    if gone:
        raise Drift(
            f"{definition['name']}: the file to patch is missing: {', '.join(sorted(gone))}",
            "`ddtool restore`",
        )
    if not files:
        refuse_absent(managed.install.dist, version, [definition])
        releases = sorted({release for target in definition["targets"] for release in target["releases"]})
        raise UsageError(
            f"{definition['name']} does not fit {managed.install.dist} {version}: it is for {', '.join(releases)}",
            "`ddtool diag list` shows what fits",
        )
    return files


def refuse_absent(dist: str, version: Optional[str], definitions: Iterable[Json]) -> None:
    """A release that has not what a patch edits: say why, and what to use there. Only asked once it did not fit."""
    release = (version or "").partition("+")[0]
    for definition in definitions:
        absent = definition.get("absent", {}).get(release)
        if absent:
            instead = absent["replaced_by"]
            raise UsageError(
                f"{definition['name']} has nothing to edit in {dist} {release}: {absent['why']}",
                f"`ddtool diag enable {instead}`" if instead else "`ddtool diag list` shows what fits",
            )


def _wanted(managed: Managed, file: str, off: Set[str], new: List[Json]) -> List[Json]:
    """The file's patch records afterwards, by name. An enabled patch with the same bytes keeps its record."""
    before = {patch["name"]: patch for patch in managed.ledger.patches(file)}
    after = {name: patch for name, patch in before.items() if name not in off}
    for patch in new:
        known = before.get(patch["name"])
        after[patch["name"]] = known if known is not None and known["sha"] == patch["sha"] else patch
    return [after[name] for name in sorted(after)]


def _baseline(managed: Managed, file: str) -> bytes:
    entry = managed.ledger.files.get(file)
    if entry is not None:
        return objects.get(managed.ctx, entry["baseline"]["sha"])
    clean = managed.clean(file)
    if clean is None:
        raise Drift(
            f"{file}: no clean version is known, so there is nothing to patch",
            "`ddtool baseline adopt NAME` makes what is there now the clean version; or pass --wheel FILE",
        )
    return clean


def _stored(managed: Managed, wanted: Dict[str, List[Json]]) -> Dict[str, Json]:
    """Definitions of the patches that stay, from the store."""
    shas = {patch["sha"] for patches in wanted.values() for patch in patches}
    return {sha: json.loads(objects.get(managed.ctx, sha)) for sha in shas if objects.has(managed.ctx, sha)}


def _refuse_undefined(wanted: Dict[str, List[Json]], definitions: Dict[str, Json]) -> None:
    """A patch of an older ddtool whose code the host has lost cannot be composed with another one again."""
    lost = sorted(
        {patch["name"] for patches in wanted.values() for patch in patches if patch["sha"] not in definitions}
    )
    if lost:
        names = " ".join(lost)
        raise Drift(
            f"the host has lost the code of an enabled patch: {', '.join(lost)}",
            f"`ddtool diag enable {names}` renews it, `ddtool diag disable {names}` takes it out",
        )


def _note_unknown(managed: Managed, composed: Composed, records: Dict[str, Json]) -> None:
    """Only of patches that are new on this file: the others were consented to when they came."""
    for item in composed.unknown:
        confirmed = {patch["sha"] for patch in managed.ledger.patches(item["file"])}
        record: Optional[Json] = records.get(item["patch"])
        if record is not None and record["sha"] not in confirmed:
            if item["missing"]:
                raise UsageError(
                    f"{item['patch']}: {item['function']} in {item['file']} is another version, and the code to insert "
                    f"uses {', '.join(item['missing'])}, which is not there",
                    "`ddtool diag show NAME` prints the code; a fork's own names need a patch of their own",
                )
            managed.plan.unknown.append(item)


def _settle(
    managed: Managed, file: str, before: str, baseline: bytes, patches: List[Json], content: bytes
) -> None:
    """Ledger entry and new bytes of one file. A file that is the wheel's again needs no entry."""
    sha = managed.keep(baseline) if patches or file in managed.ledger.files else ""
    entry = managed.ledger.files.get(file)
    if entry is None and patches:
        install = managed.install
        about = {"id": f"wheel:{install.dist}-{install.version}", "kind": "wheel", "name": None, "sha": sha}
        about.update(dist=install.dist, version=install.version, record=install.record.get(file))
        entry = managed.ledger.files[file] = {"baseline": about}
    if entry is not None:
        entry.update(patches=patches, sha=sha256(content))
        if not patches and entry["baseline"]["kind"] == "wheel":
            del managed.ledger.files[file]
    managed.write(file, content, before)


def _unknown_version(unknown: List[Json]) -> Drift:
    names = ", ".join(f"{item['patch']}: {item['function']} in {item['file']}" for item in unknown)
    return Drift(
        f"a version of the function that the patch was not checked on: {names}",
        "look at the function and the diff with --dry-run, then pass --yes",
    )
