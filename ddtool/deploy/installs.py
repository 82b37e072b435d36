"""`engine.install: managed`: which environment a profile means, what of it the host has, and the steps that make it.

The environment's folder is named by its pinned requirements, so a profile means the same one on every host, a second
deploy finds it, and a rollback the one of before. Pure, but for reading the operator's own files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddtool.deploy.plan import Change, Plan
from ddtool.deploy.release import Release
from ddtool.errors import PreflightError, UsageError
from ddtool.profile import Profile

if TYPE_CHECKING:
    from ddtool.deploy.wheelhouse import Wheelhouse

Step = dict[str, Any]
MIB = 2**20


@dataclass(frozen=True)
class Wanted:
    """`base`: the name by which people and diagnostics know the environment; `path`: the environment itself."""

    base: str
    path: str
    digest: str
    python: str
    pins: tuple[str, ...]
    house: Wheelhouse | None
    index: str | None

    @property
    def identity(self) -> str:
        """In place of the installed wheel's, which is not there before the first deploy."""
        return f"{_sglang(self.pins)} of the set {self.digest[:12]}"

    @property
    def asked(self) -> dict[str, str | None]:
        return {"base": self.base, "path": self.path, "digest": self.digest, "python": self.python}


def wanted(profile: Profile) -> Wanted | None:
    """None for an existing environment. UsageError when its files cannot be read here, or are for another release."""
    engine = profile.engine
    if engine.install != "managed":
        return None
    from ddtool.deploy import requirements, wheelhouse  # they take a while to import

    house = wheelhouse.read(engine.wheelhouse) if engine.wheelhouse else None
    pins = house.pins if house else requirements.pinned(engine.requirements or "")
    if _sglang(pins) != engine.release:
        source, held = engine.wheelhouse or engine.requirements, _sglang(pins) or "none"
        raise UsageError(
            f"the profile is for sglang {engine.release}; {source} has {held}",
            hint=f"ddtool wheelhouse build, or --set engine.release={held}",
        )
    made_of = {"requirements": sorted(pins), "python": engine.maker}
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    path = f"{engine.venv.rstrip('/')}-{digest[:12]}"
    return Wanted(
        engine.venv.rstrip("/"), path, digest, engine.maker, tuple(sorted(pins)), house, engine.index
    )


def _sglang(pins: Iterable[str]) -> str | None:
    """Its version in the set."""
    versions = {pin.split("==")[0].lower(): pin.split("==")[1].split()[0] for pin in pins}
    return versions.get("sglang")


def asked_of_host(profile: Profile) -> dict[str, str | None] | None:
    """The part of the facts request; without digest where this machine lacks the files, as for `status` elsewhere."""
    if profile.engine.install != "managed":
        return None
    try:
        found = wanted(profile)
    except UsageError:
        found = None
    base = {"base": profile.engine.venv.rstrip("/"), "path": None, "digest": None}
    return found.asked if found else {**base, "python": profile.engine.maker}


def for_deploy(facts: Mapping[str, Any], want: Wanted | None) -> dict[str, Any]:
    """Facts in which the environment is the one wanted, and not the one that is in force under its name."""
    about = facts.get("install")
    if want is None or about is None:
        return dict(facts)
    if about["incomplete"]:
        known = want.house.algorithms() if want.house else None
        venv = {"path": want.path, "exists": False, "algorithms": known}
        return {**facts, "venv": venv, "diagnostics": {"patches": []}}
    return {**facts, **(about["wanted"] or {})}


def require_in_force(want: Wanted | None, facts: Mapping[str, Any]) -> None:
    """For verbs that use the environment and do not make it. Raises PreflightError."""
    if want and (facts["install"]["incomplete"] or facts["install"]["base_target"] != want.path):
        raise PreflightError(f"the profile's environment is not in force: {want.path}", hint="ddtool deploy")


# Plans


def in_release(release: Release, want: Wanted | None) -> Release:
    """The release says where its environment came from; its digest has that by the path in its arguments."""
    if want is None:
        return release
    about = {"base": want.base, "digest": want.digest, "packages": len(want.pins)}
    return replace(release, meta={**release.meta, "install": about})


def in_plan(plan: Plan, want: Wanted | None, facts: Mapping[str, Any], held: Mapping[str, int]) -> Plan:
    """The plan with the environment made first, while the service still runs, and put in force."""
    if want is None:
        return plan
    about, steps, changes = facts["install"], [], []
    if about["incomplete"]:
        steps.append(install_step(want))
        detail = f"{len(want.pins)} packages; {about['incomplete']}"
        changes.append(Change("create", want.path, detail))
    if about["base_target"] != want.path:
        steps.append(link_step(want.base, want.path))
        changes.append(Change("change", want.base, f"{about['base_target'] or 'nothing'} → {want.path}"))
    if not steps:
        return plan
    missing = []
    if about["incomplete"] and want.house:
        missing = [wheel for wheel in want.house.wheels if held.get(wheel.sha256, 0) < wheel.bytes]
    if missing:
        size = sum(wheel.bytes - held.get(wheel.sha256, 0) for wheel in missing)
        changes.insert(0, Change("create", f"{len(missing)} wheels on the host", f"{mib(size)}, by sha256"))
    kept = [change for change in plan.changes if change.kind != "keep" or plan.steps]
    return replace(
        plan,
        changes=[*changes, *kept],
        steps=[*steps, *plan.steps],
        uploads=tuple(missing),
        warnings=[*plan.warnings, *_lost_diagnostics(about, facts)],
    )


def _lost_diagnostics(about: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    patches = [patch["name"] for patch in facts["diagnostics"].get("patches", [])]
    if patches and about["base_target"]:
        yield f"{', '.join(patches)} stays in {about['base_target']}: enable it again in the new environment"


def install_step(want: Wanted) -> Step:
    house = want.house
    files = [{"file": wheel.file, "sha256": wheel.sha256} for wheel in house.wheels] if house else []
    return {
        "step": "install",
        "path": want.path,
        "base": want.base,
        "digest": want.digest,
        "python": want.python,
        "requirements": list(want.pins),
        "wheels": files,
        "installer": house.installer if house else None,
        "index": want.index,
    }


def link_step(base: str, target: str) -> Step:
    return {"step": "link", "base": base, "target": target}


def in_rollback(plan: Plan, facts: Mapping[str, Any]) -> Plan:
    """A release of a managed environment brings that back into force, too."""
    target = next((item for item in facts["releases"] if item["id"] == plan.release), None)
    about = (target or {}).get("install")
    if target is None or not about:
        return plan
    change = Change("change", about["base"], f"→ {target['venv']}")
    return replace(
        plan, steps=[link_step(about["base"], target["venv"]), *plan.steps], changes=[change, *plan.changes]
    )


def mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB" if size < 10 * 1024 * MIB else f"{size / MIB / 1024:.1f} GiB"
