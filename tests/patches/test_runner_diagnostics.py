"""nan-guard and mem-marks: every release's own ModelRunner functions, patched, run on CPU with stand-ins around them.

A fault in the logits is named by row, node and request, a healthy pass is silent; each phase of a start leaves a mark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import venvs

from ddtool.agent.compose import compose
from ddtool.diagnostics import definition

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
FILE = "sglang/srt/model_executor/model_runner.py"
NAN, MEMORY = definition.load("nan-guard"), definition.load("mem-marks")
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def answers(
    unpacked: Callable[[str], Path], engine_path: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Answer:
    """One child for all releases: torch is imported once."""
    folder = tmp_path_factory.mktemp("runner")
    files: dict[str, dict[str, str]] = {}
    for release in NAN.releases:
        venv = unpacked(release)
        content = (venvs.site(venv) / FILE).read_bytes()
        for patch in (NAN, MEMORY):
            (composed,) = compose(str(venv), [(FILE, content, [patch.to_json()])], release)
            path = folder / f"{patch.name}-{release}.py"
            path.write_bytes(composed.content)
            files.setdefault(release, {})[patch.name] = str(path)
    (folder / "files.json").write_text(json.dumps(files))
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "runner_probe.py")]
    run = subprocess.run(
        [*command, str(folder / "files.json")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(engine_path)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answered: Answer = json.loads(run.stdout.split("RESULT ")[1])
    return answered


def markers(said: str) -> list[Answer]:
    found = [json.loads(line.removeprefix("ddtool-diag/1 ")) for line in said.splitlines()]
    return [
        {key: value for key, value in marker.items() if key not in ("pid", "sha", "patch")}
        for marker in found
    ]


@pytest.fixture(params=NAN.releases)
def guard(answers: Answer, request: pytest.FixtureRequest) -> Answer:
    found: Answer = answers[request.param]["nan-guard"]
    return found


@pytest.fixture(params=MEMORY.releases)
def marks(answers: Answer, request: pytest.FixtureRequest) -> Answer:
    found: Answer = answers[request.param]["mem-marks"]
    return found


def test_healthy_logits_pass_in_silence(guard: Answer) -> None:
    assert guard["healthy"] == guard["other_mode"] == guard["no_head"] == [""]


def test_the_first_nan_is_named_by_row_node_and_request(guard: Answer) -> None:
    before, said = guard["nan"]
    assert before == ""
    (marker,) = markers(said)
    assert marker == {
        "event": "nonfinite",
        "worker": "target",
        "rank": 3,
        "row": 40,
        "node": 7,
        "request": 1,
        "rid": "request-1",
        "kind": "nan",
        "rows": 66,
        "width": 33,
        "bad_rows": 2,
        "pass": 2,
    }


def test_each_worker_reports_once(guard: Answer) -> None:
    again, other = guard["once"]
    assert again == "" and [marker["worker"] for marker in markers(other)] == ["draft"]


def test_infinities_are_told_apart(guard: Answer) -> None:
    found = [markers(guard[case][0])[0] for case in ("inf", "minus_inf")]
    assert [(one["kind"], one["row"], one["node"], one["request"]) for one in found] == [
        ("inf", 0, 0, 0),
        ("-inf", 65, 32, 1),
    ]


def test_on_a_device_the_report_waits_for_its_copy_and_nobody_waits_for_it(guard: Answer) -> None:
    bad, under_way, arrived = guard["deferred"]
    assert bad == under_way == ""
    (marker,) = markers(arrived)
    assert (marker["kind"], marker["row"], marker["node"], marker["pass"]) == ("nan", 34, 1, 1)


def test_a_guard_that_cannot_look_says_so_and_the_pass_goes_on(guard: Answer) -> None:
    (marker,) = markers(guard["blind"][0])
    assert marker["event"] == "blind" and "NotImplementedError" in marker["why"]


def test_every_phase_of_both_workers_is_marked_once(marks: Answer) -> None:
    found = [
        (one["worker"], one["phase"]) for said in marks.values() for one in markers(said) if "phase" in one
    ]
    phases = ("load", "pool", "capture")
    starts = [(worker, phase) for worker in ("target", "draft") for phase in phases]
    assert found == [*starts, ("target", "first-decode"), ("draft", "first-decode")]


def test_without_cuda_free_is_what_sglang_says_and_the_rest_is_null(marks: Answer) -> None:
    (first, *_) = markers(marks["target initialize"])
    assert first == {
        "event": "memory",
        "worker": "target",
        "rank": 3,
        "phase": "load",
        "device": "cpu:0",
        "allocated": None,
        "reserved": None,
        "peak": None,
        "free": int(3.5 * 2**30),
        "total": None,
    }


def test_import_says_which_patch_is_loaded(guard: Answer, marks: Answer) -> None:
    for said, patch in ((guard["at_import"], NAN), (marks["at_import"], MEMORY)):
        marker = json.loads(said.removeprefix("ddtool-diag/1 "))
        assert (marker["event"], marker["patch"], marker["sha"]) == ("loaded", patch.name, patch.sha)


def test_the_cost_is_one_pass_over_the_logits(answers: Answer) -> None:
    """Bounds are tens of times what was measured, so only a blunder fails them."""
    cost = answers["cost_us"]
    assert cost["verify"] < 20 * cost["aminmax"] and cost["other"] < 1000 and cost["unmarked"] < 500
