"""Executes patches in the real SGLang of a release, on the CPU: a probe's cases on the wheel's code and on the patched.

A probe is `tests/patches/probes/NAME.py` for the patch NAME (dashes become underscores). It runs in a child process,
see `patch_child`, and has

    CASES    {case: function(modules) -> JSON}     modules[file] is the module of that file, the wheel's or the patched
    EVENTS   {case: [event, …]}                    the markers that the patched code must write in it, none if healthy;
                                                   `reached` is not one of them

All probes of a release share one child, since importing SGLang takes ten seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddtool.agent.compose import compose
from ddtool.agent.outcome import ABOUT_ITSELF, REACHED
from ddtool.diagnostics.definition import Definition

from . import venvs

PROBES = Path(__file__).resolve().parents[1] / "patches/probes"
PREFIX = "ddtool-diag/1 "
Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One case. `error`: [class, message] of what it raised; `markers`: what it wrote, parsed; `result`: its answer;
    `reached`: those markers that say that the code ran, which are no findings."""

    error: list[str] | None
    markers: list[Json]
    result: Any
    reached: list[Json] = field(compare=False)

    @property
    def events(self) -> list[str]:
        return [marker["event"] for marker in self.markers]


@dataclass(frozen=True)
class Answer:
    """A patch on a release: every case on both versions, what the import wrote, and the proof that it left."""

    release: str
    expected: dict[str, list[str]]
    wheel: dict[str, Outcome]
    patched: dict[str, Outcome]
    at_import: list[Json]
    proof: Json


def shortcomings(answer: Answer, looks_on: bool) -> list[str]:
    """Why a patch is not proven by these cases; `looks_on`: a diagnostic, which must change nothing."""
    wrong = []
    if not any(answer.expected.values()):
        wrong.append("no case provokes it")
    for case, expected in answer.expected.items():
        patched, wheel = answer.patched[case], answer.wheel[case]
        if patched.events != expected:
            wrong.append(f"{case}: {patched.events}, not {expected}")
        if not patched.reached and (case == "healthy" or set(patched.events) - {*ABOUT_ITSELF}):
            wrong.append(f"{case}: it does not say that its code ran")
        if len({marker["file"] for marker in patched.reached}) < len(patched.reached):
            wrong.append(f"{case}: it says more than once that its code ran")
        if wheel.markers or wheel.reached:
            wrong.append(f"{case}: the wheel itself writes markers")
        if case == "healthy" and (patched.error or expected):
            wrong.append(f"{case}: {patched.error or 'an event is expected'}")
        if looks_on and patched.result != wheel.result:
            wrong.append(f"{case}: the answer is {patched.result}, not {wheel.result}")
        if looks_on and not patched.events and patched != wheel:
            wrong.append(f"{case}: {patched}, not {wheel}")
    return wrong


def probe_of(name: str) -> Path:
    return PROBES / f"{name.replace('-', '_')}.py"


def probed(patches: Iterable[Definition], release: str) -> list[Definition]:
    """Those that claim the release and have a probe."""
    return [patch for patch in patches if release in patch.releases and probe_of(patch.name).is_file()]


def patched_files(venv: Path, release: str, patches: list[Definition]) -> dict[str, bytes]:
    """Every file of the release that these patches edit together. Refuses a function that a patch does not know."""
    targets = [target for patch in patches for target in patch.targets if release in target.releases]
    files = sorted({target.file for target in targets})
    jobs = [
        (file, (venvs.site(venv) / file).read_bytes(), [patch.to_json() for patch in patches])
        for file in files
    ]
    composed = compose(str(venv), jobs, release)
    assert not [item for one in composed for item in one.unknown]
    return {file: one.content for file, one in zip(files, composed, strict=True)}


@dataclass(frozen=True)
class Job:
    """One probe on one set of patched files, {file of site-packages: content}."""

    label: str
    probe: Path
    files: dict[str, bytes]


def jobs_of(venv: Path, release: str, patches: list[Definition]) -> list[Job]:
    return [
        Job(patch.name, probe_of(patch.name), patched_files(venv, release, [patch]))
        for patch in probed(patches, release)
    ]


def run(venv: Path, release: str, jobs: list[Job], engine_path: list[str], folder: Path) -> dict[str, Answer]:
    """Label → answer. The child's own failure is an AssertionError with the end of what it said."""
    asked = []
    for job in jobs:
        paths = {file: folder / job.label / file for file in job.files}
        for file, path in paths.items():
            path.parent.mkdir(parents=True)
            path.write_bytes(job.files[file])
        names = {file: str(path) for file, path in paths.items()}
        asked.append({"name": job.label, "probe": str(job.probe), "files": names})
    request = {"release": release, "run": str(folder / "run"), "jobs": asked}
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "empty").mkdir()
    environment = {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([str(venvs.site(venv)), *engine_path]),
    }
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("patch_child.py"))]
    done = subprocess.run(
        [*command, str(folder / "request.json")],
        env=environment,
        cwd=folder / "empty",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "\nRESULT " in "\n" + done.stdout, (done.stdout + done.stderr)[-4000:]
    answers = json.loads(done.stdout.rpartition("RESULT ")[2])
    return {label: _answer(release, answer) for label, answer in answers.items()}


def markers(said: str) -> list[Json]:
    return [json.loads(line.removeprefix(PREFIX)) for line in said.splitlines() if line.startswith(PREFIX)]


def _outcome(one: Json) -> Outcome:
    said = markers(one["said"])
    reached = [marker for marker in said if marker["event"] == REACHED]
    return Outcome(one["error"], [marker for marker in said if marker not in reached], one["result"], reached)


def _answer(release: str, answer: Json) -> Answer:
    assert "failed" not in answer, answer["failed"]
    outcomes = {
        version: {case: _outcome(one) for case, one in answer[version].items()}
        for version in ("wheel", "patched")
    }
    return Answer(
        release,
        answer["events"],
        outcomes["wheel"],
        outcomes["patched"],
        markers(answer["at_import"]),
        answer["proof"],
    )
