"""Plans from facts: what changes, what is refused, and exactly which transaction does it."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import mini

from ddtool.deploy import operations
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.plan import Plan, gate_drop_in, next_id, plan_deploy
from ddtool.deploy.preflight import check_all, engine_answers, failures, pair_fits
from ddtool.deploy.release import Release, build_release, fingerprint
from ddtool.errors import Drift, UsageError
from ddtool.profile import Profile, load

STATE = "/var/lib/ddtool"
SALT = "salt"


@pytest.fixture
def profile() -> Profile:
    return load(str(mini.PROFILE))


@pytest.fixture
def facts(profile: Profile) -> dict[str, Any]:
    return assumed_facts(profile)


def release_of(profile: Profile, **secrets: str) -> Release:
    return build_release(profile, secrets, SALT, "0.5.12.post1 abc")


def plan_of(profile: Profile, facts: dict[str, Any], **options: Any) -> Plan:
    return plan_deploy(profile, release_of(profile), facts, state=STATE, salt=SALT, now_unix=1.0, **options)


def deployed_facts(profile: Profile, facts: dict[str, Any]) -> dict[str, Any]:
    """Facts of a host on which the plan for `facts` was carried out."""
    plan = plan_of(profile, facts)
    after = copy.deepcopy(facts)
    meta = next(step for step in plan.steps if step["step"] == "release")["meta"]
    unit = next(step for step in plan.steps if step["step"] == "files")["files"][0]
    text = base64.b64decode(unit["content"]).decode()
    after["releases"] = [{"role": "current", **meta}]
    after["salt"] = SALT
    after["service"] = {
        "unit": {
            "exists": True,
            "active": "active",
            "path": unit["path"],
            "processes": [{"pid": 7, "title": "x"}],
        },
        "files": {unit["path"]: text},
        "deployed": {"current": plan.release, "previous": None},
        "starts": [40.0, 44.0],
    }
    return after


def test_first_deploy_is_these_steps_in_this_order(profile: Profile, facts: dict[str, Any]) -> None:
    plan = plan_of(profile, facts)
    assert [step["step"] for step in plan.steps] == [
        "release",
        "stop",
        "files",
        "start",
        "gate",
        "files",
        "enable",
    ]
    assert plan.outage.seconds == 0
    first, promoted = (step["files"] for step in plan.steps if step["step"] == "files")
    assert [item["path"] for item in first] == [
        "/etc/systemd/system/sglang-mini.service",
        gate_drop_in("sglang-mini"),
        "/var/lib/ddtool/services/sglang-mini/service.json",
    ]
    assert first[0]["expect"] == "absent"
    assert [(item["path"], item["content"]) for item in promoted] == [(gate_drop_in("sglang-mini"), None)]


def test_same_release_running_is_no_step_at_all(profile: Profile, facts: dict[str, Any]) -> None:
    assert plan_of(profile, deployed_facts(profile, facts)).nothing_to_do


def test_same_release_stopped_is_started_again_without_a_new_release(
    profile: Profile, facts: dict[str, Any]
) -> None:
    after = deployed_facts(profile, facts)
    after["service"]["unit"].update(active="inactive", processes=[])
    plan = plan_of(profile, after)
    assert "release" not in [step["step"] for step in plan.steps]
    assert plan.release == after["releases"][0]["id"]


def test_changed_profile_shows_its_diff_and_the_outage_from_past_starts(
    profile: Profile, facts: dict[str, Any]
) -> None:
    after = deployed_facts(profile, facts)
    changed = load(str(mini.PROFILE), ["server_args.context-length=512"])
    plan = plan_of(changed, after)
    config = next(change for change in plan.changes if change.what == "config")
    assert "+context-length: 512" in config.diff
    assert plan.outage.seconds == 44.0
    assert plan.release.startswith("0002-")


def test_foreign_unit_is_refused_and_taken_over_only_when_asked(
    profile: Profile, facts: dict[str, Any]
) -> None:
    path = "/etc/systemd/system/sglang-mini.service"
    facts["service"]["unit"] = {"exists": True, "active": "active", "path": path, "processes": []}
    facts["service"]["files"] = {path: "[Service]\nExecStart=/usr/bin/mine --port 1\n"}
    with pytest.raises(Drift) as error:
        plan_of(profile, facts)
    assert "ExecStart=/usr/bin/mine --port 1" in (error.value.why or "")
    assert plan_of(profile, facts, take_over=True).steps


def test_unit_edited_by_hand_is_drift(profile: Profile, facts: dict[str, Any]) -> None:
    after = deployed_facts(profile, facts)
    path = after["service"]["unit"]["path"]
    after["service"]["files"][path] += "# a hand was here\n"
    with pytest.raises(Drift, match="edited by hand"):
        plan_of(profile, after)


def test_foreign_drop_in_is_a_warning(profile: Profile, facts: dict[str, Any]) -> None:
    after = deployed_facts(profile, facts)
    after["service"]["files"]["/etc/systemd/system/sglang-mini.service.d/mine.conf"] = "[Service]\nNice=5\n"
    after["releases"][0]["digest"] = "another"
    assert any("mine.conf" in warning for warning in plan_of(profile, after).warnings)


def test_digest_sees_secrets_but_does_not_hold_them() -> None:
    profile = load(str(mini.PROFILE), ["service.api_key=${env:KEY}"])
    one, same, other = (
        release_of(profile, KEY=value) for value in ("secret-one", "secret-one", "secret-two")
    )
    assert one.digest == same.digest != other.digest
    assert "secret-one" not in repr(one.meta)
    assert b"secret-one" in one.files["config.yaml"]


@given(st.text(min_size=8), st.text(min_size=8))
def test_fingerprints_differ_by_salt(secret: str, salt: str) -> None:
    assert fingerprint(salt, secret) != fingerprint(salt + "x", secret)


def test_tool_version_is_no_part_of_the_identity(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    before = release_of(profile).digest
    monkeypatch.setattr("ddtool.__version__", "99")
    assert release_of(profile).digest == before


def test_release_numbers_only_grow() -> None:
    facts = {"releases": [{"id": "0009-aa"}, {"id": "0010-bb"}]}
    assert next_id(facts, "c" * 64) == "0011-cccccccc"


def test_rollback_names_what_is_kept_when_there_is_nothing_to_go_back_to(
    profile: Profile, facts: dict[str, Any]
) -> None:
    after = deployed_facts(profile, facts)
    with pytest.raises(UsageError) as error:
        operations.plan_rollback("sglang-mini", after, to=None, state=STATE)
    assert after["releases"][0]["id"] in (error.value.hint or "")


def test_verbs_without_a_deployment_say_how_to_get_one(facts: dict[str, Any]) -> None:
    for plan in (operations.plan_start, operations.plan_stop, operations.plan_restart):
        with pytest.raises(UsageError) as error:
            plan("sglang-mini", facts)
        assert error.value.hint == "ddtool deploy PROFILE"


def test_remove_puts_patched_files_back_before_anything_is_deleted(
    profile: Profile, facts: dict[str, Any]
) -> None:
    after = deployed_facts(profile, facts)
    plan = operations.plan_remove("sglang-mini", after, state=STATE, restore={"step": "compose"})
    assert [step["step"] for step in plan.steps] == ["stop", "enable", "compose", "files", "purge"]


def test_preflight_of_an_assumed_host_passes(profile: Profile, facts: dict[str, Any]) -> None:
    assert failures(check_all(profile, facts, facts["host"]["unix"])) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda f: f["host"].update(systemd=False), "systemd"),
        (lambda f: f["host"].update(state_free_mib=10), "disk"),
        (lambda f: f["venv"].update(exists=False), "venv"),
        (lambda f: f["venv"]["dists"].update(sglang="0.5.17"), "sglang"),
        (lambda f: f["venv"].update(algorithms=["EAGLE", "NONE"]), "provider"),
        (lambda f: f["model"].update(exists=False), "model"),
        (lambda f: f["drafter"].update(missing=["model.safetensors"]), "drafter"),
        (lambda f: f["port"].update(free=False, pid=999, title="other"), "port"),
    ],
)
def test_preflight_names_what_is_in_the_way(
    profile: Profile, facts: dict[str, Any], change: Any, name: str
) -> None:
    change(facts)
    failed = failures(check_all(profile, facts, facts["host"]["unix"]))
    assert [check.name for check in failed] == [name]
    assert failed[0].hint


def test_plugin_beside_a_builtin_of_the_same_name_is_refused(facts: dict[str, Any]) -> None:
    profile = load("k26-ddtree")
    facts["venv"]["algorithms"] = ["DFLASH", "DDTREE"]
    failed = failures(check_all(profile, {**assumed_facts(profile), "venv": facts["venv"]}, 0.0))
    assert any("its own would silently win" in check.detail for check in failed)


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
        ({"hidden_size": 8}, {"hidden_size": 16}, "hidden size: target 8, drafter 16"),
        ({"vocab_size": 8}, {"vocab_size": 9}, "vocabulary: target 8, drafter 9"),
        ({"num_hidden_layers": 4}, {"dflash_config": {"target_layer_ids": [1, 4]}}, "target with 4 layers"),
        ({"num_hidden_layers": 4}, {"num_target_layers": 6}, "made for a target of 6 layers"),
        ({}, {"block_size": 16}, "block: profile 8, drafter 16"),
        ({}, {"num_attention_heads": 3}, "do not divide by tp 2"),
    ],
)
def test_a_pair_that_does_not_fit(profile: Profile, target: Any, drafter: Any, words: str) -> None:
    (check,) = pair_fits(profile, target, drafter)
    assert check.state == "fail"
    assert words in check.detail


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        ({"provider": "ddtool_engine.v1.algorithm", "error": None}, "ok", "asked of it"),
        ({"provider": "sglang.srt.speculative.spec_info", "error": None}, "fail", "sglang.srt.speculative"),
        ({"provider": None, "error": "RuntimeError: not made for 0.5.17"}, "fail", "not made for 0.5.17"),
    ],
)
def test_who_answers_in_the_hosts_sglang(answer: dict[str, Any], state: str, words: str) -> None:
    check = engine_answers({"engine": "abc", "sglang": "0.5.12.post1", **answer})
    assert check.state == state
    assert words in check.detail
