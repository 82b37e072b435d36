"""`deploy --offline`: a plan without the host, from a file of its facts or from assumptions that are labelled."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtool.deploy import installs
from ddtool.deploy.outage import Outage
from ddtool.deploy.plan import Change, Plan, plan_deploy
from ddtool.deploy.preflight import check_all, failures
from ddtool.deploy.release import build_release
from ddtool.errors import UsageError
from ddtool.profile import Profile
from ddtool.profile.validate import require_valid

STATE = "/var/lib/ddtool"
GIB = 2**30


def plan_offline(profile: Profile, facts_file: str | None) -> Plan:
    """Secrets are not read. With facts from a file, what would stop the deploy there is a warning of the plan."""
    findings = require_valid(profile)
    facts = read_facts(facts_file) if facts_file else assumed_facts(profile)
    want = installs.wanted(profile)
    profile = profile.with_environment(want.path) if want else profile
    installed = facts["venv"]["sglang"]["identity"] if facts["venv"].get("sglang") else None
    wheel = want.identity if want else installed
    references = {name: f"${{env:{name}}}" for text in profile.secret_texts for name in text.names}
    release = installs.in_release(build_release(profile, references, "", wheel), want)
    plan = plan_deploy(profile, release, facts, state=STATE, salt="", now_unix=time.time())
    checks = check_all(profile, facts, facts["host"]["unix"])
    if want and facts.get("install"):
        from ddtool.deploy import install_checks

        checks = [*install_checks.checks(want, facts, {}), *checks]
        plan = installs.in_plan(plan, want, facts, {})
    warnings = [f"{check.name}: {check.detail}" for check in failures(checks)]
    source = (
        f"facts from {facts_file}"
        if facts_file
        else "assumed: an empty host with the profile's release installed"
    )
    changes = [Change("keep", "facts", source), *plan.changes]
    return replace(
        plan,
        changes=changes,
        outage=first_start(profile, plan.outage),
        warnings=[*plan.warnings, *warnings, *map(str, findings)],
    )


def read_facts(path: str) -> dict[str, Any]:
    """From a file of the facts alone, or of what `doctor --json` printed."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        facts: dict[str, Any] = found.get("facts", found)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read facts from {path}: {error}") from error
    if facts.get("schema") != "ddtool.facts/1":
        raise UsageError(f"{path} holds no facts", hint="`ddtool doctor --json` prints a host's facts")
    return facts


def first_start(profile: Profile, outage: Outage) -> Outage:
    """On an assumed host nothing runs, so nothing goes away; the start itself takes this long."""
    shape = profile.model.shape
    if outage.seconds or shape is None or shape.weights_gib is None:
        return outage
    return Outage(
        0, f"nothing runs yet; loading {shape.weights_gib:.0f} GiB takes its time before the first answer"
    )


def assumed_facts(profile: Profile) -> dict[str, Any]:
    shape = profile.model.shape
    card = profile.parallel.card
    weights = int((shape.weights_gib or 0) * GIB) if shape else 0
    return {
        "schema": "ddtool.facts/1",
        "host": {
            "hostname": "assumed",
            "os": "assumed",
            "kernel": "assumed",
            "memory_mib": 0,
            "systemd": True,
            "state_free_mib": 1 << 20,
            "shm_free_mib": 1 << 20,
            "shm_total_mib": 1 << 20,
            "persistent_journal": True,
            "unix": time.time(),
        },
        "gpus": [
            {
                "index": index,
                "name": card.name if card else "assumed",
                "driver": "assumed",
                "memory_used_mib": 0,
                "memory_total_mib": 0,
            }
            for index in range(profile.parallel.tp)
        ],
        "venv": {
            "path": profile.engine.venv,
            "exists": True,
            "python": "assumed",
            "dists": {"sglang": profile.engine.release},
            "sglang": {
                "identity": profile.engine.release,
                "files": 0,
                "modified": [],
                "missing": [],
                "unmanaged": None,
            },
            "algorithms": None,
            "standins": [],
        },
        "model": {
            "path": profile.model.path,
            "exists": True,
            "config": None,
            "missing": [],
            "bytes": weights,
        },
        "drafter": {"path": profile.drafter.path, "exists": True, "config": None, "missing": [], "bytes": 0}
        if profile.drafter
        else None,
        "port": {"port": profile.service.port, "free": True},
        "service": {"unit": {"exists": False}, "files": {}, "deployed": None, "starts": []},
        "releases": [],
        "diagnostics": {},
        "transactions": {"lock": None, "dead": []},
        "salt": "",
    }
