"""Plans of a takeover: what is stopped, what is kept, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support import mini

from ddtool.deploy import takeover
from ddtool.deploy.drain import drained
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.plan import Plan, gate_drop_in, plan_deploy
from ddtool.deploy.release import build_release
from ddtool.errors import Drift, PreflightError, UsageError
from ddtool.profile import Profile, load

STATE = "/var/lib/ddtool"
UNIT = "/etc/systemd/system/sglang-mini.service"
GIVEN: dict[str, Any] = {"state": STATE, "salt": "salt", "now_unix": 1.0}
ADOPTED = {"unix": 1.0, "active": True, "enabled": "enabled", "digest": "d1", "paths": [UNIT]}


@pytest.fixture
def profile() -> Profile:
    return load(str(mini.PROFILE))


@pytest.fixture
def handmade(profile: Profile) -> dict[str, Any]:
    """A host on which somebody's unit of that name runs."""
    facts = assumed_facts(profile)
    facts["service"] = {
        "unit": {
            "exists": True,
            "active": "active",
            "path": UNIT,
            "enabled": "enabled",
            "processes": [{"pid": 7}],
        },
        "files": {UNIT: "[Service]\nExecStart=/bin/x\n"},
        "sha256": {UNIT: "s1"},
        "foreign": {"digest": "d1", "paths": [UNIT, f"{UNIT}.d/a.conf"], "obstacle": None},
        "adopted": None,
        "runs": None,
        "deployed": None,
        "starts": [],
        "requests": {"running": 0, "waiting": 0},
    }
    return facts


def release_of(profile: Profile, wheel: str = "w") -> Any:
    return build_release(profile, {}, "salt", wheel)


def taken(profile: Profile, handmade: dict[str, Any], *, runs: bool) -> dict[str, Any]:
    """The same host after a takeover; `runs`: and after a restart."""
    release = release_of(profile)
    plan = takeover.plan_take_over(profile, release, handmade, restart=False, **GIVEN)
    meta = next(step for step in plan.steps if step["step"] == "release")["meta"]
    facts = copy.deepcopy(handmade)
    facts["releases"] = [{"role": "current", **meta}]
    text = release.unit_text.replace("@RELEASE@", f"{STATE}/services/sglang-mini/releases/{plan.release}")
    facts["service"] |= {
        "files": {UNIT: text},
        "sha256": {UNIT: meta["unit_sha256"]},
        "foreign": None,
        "adopted": ADOPTED,
        "runs": plan.release if runs else None,
        "deployed": {"current": plan.release, "previous": None},
    }
    return facts


def kinds(plan: Plan) -> list[str]:
    return [step["step"] for step in plan.steps]


def test_without_being_asked_it_is_drift(profile: Profile, handmade: dict[str, Any]) -> None:
    with pytest.raises(Drift, match="not ddtool's"):
        plan_deploy(profile, release_of(profile), handmade, **GIVEN)


def test_a_running_unit_is_taken_over_without_a_stop(profile: Profile, handmade: dict[str, Any]) -> None:
    plan = takeover.plan_take_over(profile, release_of(profile), handmade, restart=False, **GIVEN)
    assert kinds(plan) == ["release", "adopt"]
    assert plan.outage.seconds == 0
    adopt = plan.steps[1]
    assert adopt["expect"] == "d1" and adopt["about"]["active"] is True
    assert gate_drop_in("sglang-mini") not in [item["path"] for item in adopt["files"]]
    assert plan.warnings == []


def test_a_restart_goes_through_the_gate(profile: Profile, handmade: dict[str, Any]) -> None:
    plan = takeover.plan_take_over(profile, release_of(profile), handmade, restart=True, **GIVEN)
    assert kinds(plan) == ["release", "stop", "adopt", "start", "gate", "files", "enable"]
    assert plan.outage.seconds > 0


def test_a_unit_that_does_not_run_is_started(profile: Profile, handmade: dict[str, Any]) -> None:
    handmade["service"]["unit"] |= {"active": "inactive", "processes": []}
    plan = takeover.plan_take_over(profile, release_of(profile), handmade, restart=False, **GIVEN)
    assert "start" in kinds(plan) and plan.outage.seconds == 0
    assert next(step for step in plan.steps if step["step"] == "adopt")["about"]["active"] is False


def test_what_cannot_be_kept_is_refused(profile: Profile, handmade: dict[str, Any]) -> None:
    handmade["service"]["foreign"]["obstacle"] = {"message": "it is another name of x", "hint": "y"}
    with pytest.raises(PreflightError, match="another name"):
        takeover.plan_take_over(profile, release_of(profile), handmade, restart=False, **GIVEN)


def test_a_second_deploy_does_nothing_and_says_that_a_restart_is_due(
    profile: Profile, handmade: dict[str, Any]
) -> None:
    facts = taken(profile, handmade, runs=False)
    plan = takeover.plan_waiting(profile, release_of(profile), facts, stay=False, restart=False, **GIVEN)
    assert plan.nothing_to_do and "ddtool restart" in plan.changes[0].detail


@pytest.mark.parametrize(
    ("stay", "restart", "steps"),
    [
        (True, False, ["release", "files"]),
        (False, False, ["release", "give-back", "stop", "adopt", "start", "gate", "files", "enable"]),
    ],
)
def test_another_release_while_the_old_process_runs(
    profile: Profile, handmade: dict[str, Any], stay: bool, restart: bool, steps: list[str]
) -> None:
    facts = taken(profile, handmade, runs=False)
    other = release_of(profile, "another wheel")
    plan = takeover.plan_waiting(profile, other, facts, stay=stay, restart=restart, **GIVEN)
    assert kinds(plan) == steps


def test_the_first_restart_has_the_original_on_disk_while_it_stops(
    profile: Profile, handmade: dict[str, Any]
) -> None:
    """Undone in reverse, the stop starts what is on disk then."""
    facts = taken(profile, handmade, runs=False)
    plan = takeover.plan_first_restart("restart", "sglang-mini", facts, state=STATE)
    assert kinds(plan) == ["give-back", "stop", "adopt", "start", "gate", "files", "enable"]
    assert plan.steps[2]["expect"] == "d1" and plan.steps[2]["about"]["active"] is True


def test_given_back_before_a_restart_nothing_stops(profile: Profile, handmade: dict[str, Any]) -> None:
    plan = takeover.plan_give_back(
        "sglang-mini", taken(profile, handmade, runs=False), state=STATE, restore=None
    )
    assert kinds(plan) == ["give-back", "purge"] and plan.outage.seconds == 0


@pytest.mark.parametrize("active", [True, False])
def test_given_back_later_it_runs_as_it_ran(profile: Profile, handmade: dict[str, Any], active: bool) -> None:
    facts = taken(profile, handmade, runs=True)
    facts["service"]["adopted"] = {**ADOPTED, "active": active}
    plan = takeover.plan_give_back("sglang-mini", facts, state=STATE, restore=None)
    assert kinds(plan) == ["stop", "give-back", *(["start-original"] if active else []), "purge"]


def test_remove_wants_to_be_told(profile: Profile, handmade: dict[str, Any]) -> None:
    facts = taken(profile, handmade, runs=True)
    with pytest.raises(UsageError, match="taken over"):
        takeover.refuse_to_lose("sglang-mini", facts)
    facts["service"]["adopted"] = None
    takeover.refuse_to_lose("sglang-mini", facts)
    with pytest.raises(UsageError, match="was not taken over"):
        takeover.plan_give_back("sglang-mini", facts, state=STATE, restore=None)


def test_what_would_start_the_release_on_the_side_waits(profile: Profile, handmade: dict[str, Any]) -> None:
    with pytest.raises(PreflightError, match="diag run"):
        takeover.refuse_while_waiting(taken(profile, handmade, runs=False), "diag run")
    takeover.refuse_while_waiting(taken(profile, handmade, runs=True), "diag run")


def test_a_drain_asks_while_the_release_is_still_known(profile: Profile, handmade: dict[str, Any]) -> None:
    facts = taken(profile, handmade, runs=False)
    plan = drained(takeover.plan_first_restart("restart", "sglang-mini", facts, state=STATE), 30)
    assert kinds(plan)[:3] == ["drain", "give-back", "stop"]
