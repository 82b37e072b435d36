"""The plan of `diag run`: what it does to the host, in which order, and what it sends. Pure."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from support import mini, minidiag

from ddtool.deploy import experiment
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.plan import Plan
from ddtool.deploy.toggle import plan_toggle, toggle_request
from ddtool.diagnostics import definition, view
from ddtool.errors import UsageError
from ddtool.profile import Profile, load

from .test_plan import SALT, STATE, deployed_facts, release_of

RUN = "/run/ddtool"
PATCH = definition.read(minidiag.FOLDER / minidiag.NAME)
PREVIEW = {
    "digest": "d",
    "nothing_to_do": False,
    "summary": [],
    "diffs": {"a.py": "+x"},
    "notes": [],
    "unknown": [],
    "units": {"sglang-mini": [7], "other": []},
}


@pytest.fixture
def profile() -> Profile:
    return load(str(mini.PROFILE))


@pytest.fixture
def deployed(profile: Profile) -> dict[str, Any]:
    return deployed_facts(profile, assumed_facts(profile))


def plan_of(profile: Profile, facts: dict[str, Any], **changed: Any) -> Plan:
    return experiment.plan_experiment(
        profile,
        changed.pop("patch", PATCH),
        release_of(profile),
        facts,
        {**PREVIEW, **changed},
        toggle_request(profile.engine.venv, enable=[PATCH.to_json()]),
        asked=experiment.requests(profile, None, 2),
        timeout_s=30.0,
        state=STATE,
        run=RUN,
        salt=SALT,
        now_unix=1.0,
    )


def steps(plan: Plan) -> list[str]:
    return [step["step"] for step in plan.steps]


def test_what_is_deployed_runs_with_the_patch_and_nothing_else(
    profile: Profile, deployed: dict[str, Any]
) -> None:
    plan = plan_of(profile, deployed)
    assert steps(plan) == ["safeguard", "stop", "files", "compose", "start", "experiment"]
    (only,) = plan.steps[2]["files"]
    text = base64.b64decode(only["content"]).decode()
    assert "Restart=no" in text and f"ConditionPathExists={RUN}/sglang-mini/experiment" in text
    assert plan.steps[1]["restore"] and plan.release == deployed["releases"][0]["id"]
    assert plan.outage.seconds == 2 * 44.0 + 30.0
    assert "other (stopped)" in plan.warnings[0]
    assert experiment.document(plan)["temporary"]


def test_another_configuration_comes_and_goes_as_a_release_of_its_own(
    profile: Profile, deployed: dict[str, Any]
) -> None:
    other = load(str(mini.PROFILE), ["env.MINI_CRASH=start"])
    plan = plan_of(other, deployed)
    assert steps(plan) == ["safeguard", "release", "stop", "files", "compose", "start", "experiment"]
    names = [item["path"].rsplit("/", 1)[1] for item in plan.steps[3]["files"]]
    assert names == ["ddtool-gate.conf", "sglang-mini.service", "service.json"]
    record = json.loads(base64.b64decode(plan.steps[3]["files"][2]["content"]))
    assert (record["current"], record["previous"]) == (plan.release, deployed["releases"][0]["id"])
    assert plan.steps[-1]["release"] == plan.release != deployed["releases"][0]["id"]


def test_on_a_host_without_any_release(profile: Profile) -> None:
    plan = plan_of(profile, assumed_facts(profile))
    assert "release" in steps(plan) and plan.outage.seconds == 0
    assert plan.changes[-1].detail == "leave it stopped, as it was"


def test_a_patch_that_is_on_already_stays_on(profile: Profile, deployed: dict[str, Any]) -> None:
    assert "compose" not in steps(plan_of(profile, deployed, nothing_to_do=True, diffs={}))


def test_a_fix_has_no_hypothesis_to_test(profile: Profile, deployed: dict[str, Any]) -> None:
    fix = PATCH.model_copy(update={"kind": "fix", "hypothesis": None})
    with pytest.raises(UsageError, match="is a fix") as refused:
        plan_of(profile, deployed, patch=fix)
    assert "diag enable" in (refused.value.hint or "")


def test_health_prompts_are_sent_in_turn(profile: Profile) -> None:
    profile = load(str(mini.PROFILE), ["health.prompts=[a, b]"])
    bodies = [item["body"] for item in experiment.requests(profile, None, 3)]
    assert [body["text"] for body in bodies] == ["a", "b", "a"]
    assert bodies[0]["sampling_params"] == {"temperature": 0, "max_new_tokens": profile.health.max_tokens}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"text": "x"}, "/generate"),
        ({"input_ids": [1]}, "/generate"),
        ({"prompt": "x", "model": "m"}, "/v1/completions"),
        ({"messages": []}, "/v1/chat/completions"),
    ],
)
def test_a_request_goes_where_its_form_belongs(
    profile: Profile, tmp_path: Path, body: dict[str, Any], path: str
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(body))
    assert experiment.requests(profile, str(file), 2) == [{"path": path, "body": body}] * 2


@pytest.mark.parametrize("text", ["{", "[]", '{"question": 1}'])
def test_a_file_that_is_no_request_is_refused(profile: Profile, tmp_path: Path, text: str) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        experiment.requests(profile, str(file), 1)
    assert str(file) in refused.value.message and refused.value.hint


def seen(**more: Any) -> dict[str, Any]:
    return {
        "patch": "p",
        "outcome": "crashed elsewhere",
        "conclusion": "refuted",
        "hypothesis": "no",
        "why": "",
        "loaded_by": [{"pid": 1, "rank": 0}, {"pid": 2, "rank": 1}],
        "reached_by": [{"pid": 1, "rank": 0}],
        "phase": "serving",
        "asked": 1,
        "ranks": {},
        "requests": [{"status": 200}],
        "ended": None,
        "evidence": None,
        "events": [],
        **more,
    }


@pytest.mark.parametrize("category", ["oom_runtime", "host_oom_kill", "gpu_hw_error"])
def test_running_out_of_something_refutes_nothing(category: str) -> None:
    judged = experiment.with_verdict(seen(verdict={"category": category, "cause": "It ran out."}))
    assert (judged["outcome"], judged["conclusion"]) == ("other failure first", "inconclusive")
    assert view.outcome_line(judged).startswith(
        "p: other failure first. Hypothesis inconclusive: It ran out."
    )


def test_other_verdicts_leave_the_outcome_as_it_is() -> None:
    one = seen(verdict={"category": "graph_none_buffer", "cause": "x"})
    assert experiment.with_verdict(one) == one == experiment.with_verdict(copy.deepcopy(one))
    fired = seen(outcome="fired", verdict={"category": "oom_runtime", "cause": "x"})
    assert experiment.with_verdict(fired) == fired and experiment.with_verdict(seen()) == seen()


def test_details_say_who_loaded_it_and_what_came_back() -> None:
    lines = view.outcome_details(seen(ended={"result": "signal", "exit_status": 9}))
    assert lines[0] == "loaded by ranks 0-1, its code reached by rank 0; got as far as: serving"
    assert "1 of 1 requests answered" in lines and "result signal, exit status 9" in lines[-1]
    some = view.outcome_details(
        seen(loaded_by=[{"pid": 1, "rank": None}], reached_by=[], ranks={"0": "a", "1": "b", "": "c"})
    )
    assert some[0].startswith("loaded by 1 process, its code reached by none;")
    assert some[1] == "its ranks got to different points: rank 0 a, rank 1 b"


def test_events_are_rows_without_what_all_of_them_have() -> None:
    event = {
        "patch": "p",
        "sha": "s",
        "event": "none",
        "worker": "draft",
        "rank": 3,
        "pid": 7,
        "field": "positions",
    }
    assert view.event_rows([event]) == [("none", "draft", "3", "field positions")]


def test_a_toggles_plan_says_how_long_a_diagnostic_stays(profile: Profile, deployed: dict[str, Any]) -> None:
    request = toggle_request(profile.engine.venv, enable=[PATCH.to_json()])
    plan = plan_toggle("diag enable", "sglang-mini", request, PREVIEW, deployed, restart=False)
    assert plan.changes[0].what == "diagnostic mini-copy" and "14 days" in plan.changes[0].detail
    assert "other (stopped)" in plan.warnings[0]
