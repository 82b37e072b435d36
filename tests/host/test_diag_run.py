"""`diag run` on the mini service: the right outcome in each case, and the host as before, however it is interrupted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import doctored, mini, minidiag
from support.cli import here as ddtool
from support.remote import output, until
from support.service import active, at_rest, look

from ddtool import profile
from ddtool.deploy import experiment
from ddtool.deploy.deployment import Deployment
from ddtool.diagnostics import definition
from ddtool.errors import DdtoolError
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

CASE = {
    "fired": ["env.MINI_CRASH=on_generate"],
    "crashed elsewhere": ["env.MINI_CRASH=after_replay"],
    "not fired": [],
    "hung": ["env.MINI_HANG=on_generate"],
    "hung at the start": ["env.MINI_HANG=start", "service.deadlines.start_s=2"],
    "other failure first": ["env.MINI_CRASH=start"],
}


@pytest.fixture(scope="module")
def deployed(host: Sandbox) -> Iterator[Sandbox]:
    """The healthy service, released as the profile says."""
    mini.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", str(mini.PROFILE))
        patch.setattr(definition, "data_folder", lambda name: minidiag.FOLDER)
        done = ddtool("deploy", "--yes")
        assert done.returncode == 0, done.stderr
        yield host


@pytest.fixture(scope="module")
def was(deployed: Sandbox) -> dict[str, Any]:
    return look(deployed)


@pytest.fixture
def before(deployed: Sandbox, was: dict[str, Any]) -> Iterator[None]:
    """The test ends with every managed file and the service as they were before the first one."""
    yield
    assert look(deployed) == was


def run_args(case: str, *more: str) -> list[str]:
    overrides = [word for override in CASE[case] for word in ("--set", override)]
    return ["diag", "run", minidiag.NAME, "--yes", "--timeout", "3", *overrides, *more]


def run(case: str, *more: str) -> dict[str, Any]:
    done = ddtool(*run_args(case, "--json", *more))
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["schema"] == "ddtool.diag.run/1"
    return {**said, "stderr": done.stderr}


@pytest.mark.usefixtures("before")
class TestOutcomes:
    def test_crashed_elsewhere(self) -> None:
        said = run("crashed elsewhere")
        assert (said["outcome"], said["conclusion"], said["events"]) == ("crashed elsewhere", "refuted", [])
        assert "cannot be committed" in said["stderr"]

    def test_hung_in_a_request(self) -> None:
        said = run("hung")
        assert (said["outcome"], said["conclusion"], said["phase"]) == (
            "hung",
            "inconclusive",
            "answering requests",
        )
        assert said["evidence"]["stacks"] and "in wait_for_nothing" in said["stderr"]

    @pytest.mark.slow
    def test_hung_at_the_start(self) -> None:
        said = run("hung at the start")
        assert (said["outcome"], said["phase"], said["asked"]) == ("hung", "loading weights", 0)
        assert said["ranks"]["0"] == said["ranks"]["1"] == "loading weights"

    def test_other_failure_first(self) -> None:
        said = run("other failure first")
        assert (said["outcome"], said["conclusion"]) == ("other failure first", "inconclusive")
        assert "the weights cannot be loaded" in said["stderr"]


@pytest.mark.usefixtures("before")
def test_not_fired_under_load_on_a_service_that_is_stopped(deployed: Sandbox) -> None:
    """It is stopped afterwards, too."""
    assert ddtool("stop", "--yes").returncode == 0
    stopped = look(deployed)
    said = run("not fired", "--load", "3")
    assert (said["outcome"], said["conclusion"], said["evidence"]) == ("not fired", "refuted", None)
    assert {item["rank"] for item in said["reached_by"]} == {0, 1}, "silence counts where the code ran"
    assert [item["status"] for item in said["requests"]] == [200, 200, 200]
    assert look(deployed) == stopped and stopped["active"] == "inactive"
    assert said["put_back"] == "the service is stopped, as it was" and said["round_trips"] <= 4
    assert ddtool("start", "--yes").returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("before")
def test_a_request_that_is_refused_proves_nothing(deployed: Sandbox, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"prompt": "a b", "max_tokens": 3}))  # the mini service has no such route
    said = run("not fired", "--request", str(request))
    assert (said["outcome"], said["conclusion"]) == ("not fired", "inconclusive")
    assert said["requests"][0]["status"] == 404


class Watched:
    """A running `diag run` whose progress can be waited for."""

    def __init__(self, case: str) -> None:
        self.process = subprocess.Popen(
            [*minidiag.COMMAND, *run_args(case)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, text: str) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if text in line:
                return
        pytest.fail(f"{text!r} never came")

    def end(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


def over(host: Sandbox) -> None:
    """Wait until no executor runs any more, and nothing is left to settle."""
    at_rest(host)
    # As the agent sees it: a plan with a whole line in its journal has begun, and is not over.
    begun = (
        "cd /var/lib/ddtool/txn; for plan in */plan.json; do "
        "test -e $plan && grep -lzP '\\n' ${plan%plan.json}journal.jsonl; done; true"
    )
    assert output(host, begun) == ""


POINTS = ["[2]", "[4]", "[5]", "1 requests"]
AT_EACH_POINT = pytest.mark.parametrize(
    "point", [pytest.param(one, marks=pytest.mark.slow) for one in POINTS[:-1]] + POINTS[-1:]
)


@pytest.mark.usefixtures("before")
@AT_EACH_POINT
def test_ctrl_c_puts_everything_back_at_once(deployed: Sandbox, point: str) -> None:
    watched = Watched("hung")
    watched.until(point)
    watched.process.send_signal(signal.SIGINT)
    assert watched.end() == 130
    over(deployed)


@pytest.mark.usefixtures("before")
@AT_EACH_POINT
def test_without_its_ddtool_the_experiment_ends_by_itself(deployed: Sandbox, point: str) -> None:
    """And whoever comes back can read its outcome: it fired."""
    watched = Watched("fired")
    watched.until(point)
    watched.process.kill()
    watched.end()
    attached = ddtool("diag", "run", "--attach", "--json")
    assert attached.returncode == 0, attached.stderr
    said = json.loads(attached.stdout)
    assert (said["outcome"], said["conclusion"]) == ("fired", "confirmed")
    assert said["hypothesis"] == "an input of the replay is None"
    first = said["events"][0]
    assert (first["event"], first["index"], first["side"], first["group_size"]) == ("none", 4, "src", 5)
    assert {item["rank"] for item in said["loaded_by"]} == {0, 1}
    assert said["ended"] == {"result": "exit-code", "exit_status": 3}
    assert "AttributeError: 'NoneType' object has no attribute 'dtype'" in attached.stderr
    assert said["evidence"]["folder"].startswith("/var/lib/ddtool/evidence/")
    assert said["verdict"]["category"] not in ("no_crash", "unknown")
    over(deployed)


@pytest.mark.usefixtures("before")
@AT_EACH_POINT
def test_a_killed_executor_is_undone_by_the_host(deployed: Sandbox, point: str) -> None:
    watched = Watched("hung")
    watched.until(point)
    output(deployed, "systemctl kill -s KILL --kill-who=main 'ddtool-txn-*'")
    assert watched.end() == 1
    over(deployed)


@pytest.mark.usefixtures("before")
@AT_EACH_POINT
def test_a_power_cut_is_undone_by_the_next_boot(deployed: Sandbox, faults: ModuleType, point: str) -> None:
    watched = Watched("hung")
    watched.until(point)
    faults.power_off(deployed)
    watched.process.kill()
    watched.end()
    faults.power_on(deployed)
    until(lambda: active(deployed) == "active", timeout=60)
    over(deployed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_executor_killed_at_every_act(
    deployed: Sandbox, was: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every seventh act, from a random one on: each managed file and the service as before."""
    monkeypatch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
    at, ends = random.randrange(1, 8), 0
    while killed_at(deployed, at):
        over(deployed)
        assert look(deployed) == was, at
        at, ends = at + 7, ends + 1
    print(f"the executor was killed at {ends} acts, the last of them {at - 7}")
    assert ends > 20


def killed_at(host: Sandbox, at: int) -> bool:
    """False when the experiment was over before its `at`-th act."""
    doctored.arm(host, "txn", at)
    loaded = profile.load(str(mini.PROFILE))
    with Deployment(loaded, f"sandbox:{host.name}") as deployment:
        patch = definition.load(minidiag.NAME)
        asked = experiment.requests(loaded, None, 1)
        plan = deployment.plan_experiment(patch, asked=asked, timeout_s=3)
        try:
            experiment.run(deployment.agent, experiment.document(plan), lambda event: None)
        except DdtoolError as error:
            print(at, error.message)
    hit = doctored.fired(host)
    doctored.disarm(host)
    return hit is not None


def status() -> dict[str, Any]:
    done = ddtool("diag", "status", "--json")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_status_says_what_is_on_disk_and_what_each_rank_runs(deployed: Sandbox) -> None:
    assert ddtool("diag", "enable", minidiag.NAME, "--yes").returncode == 0
    said = status()
    (patch,) = said["patches"]
    assert patch["on_disk"] and patch["loaded"] == patch["reached"] == [] and said["restart_needed"]
    assert said["outdated"] == []
    assert [(row["rank"], row["missing"]) for row in said["ranks"]] == [
        (0, ["mini-copy"]),
        (1, ["mini-copy"]),
    ]
    assert ddtool("restart", "--yes").returncode == 0
    said = status()
    (patch,) = said["patches"]
    assert patch["loaded"] == patch["reached"] == [0, 1] and not said["restart_needed"]
    assert "by ranks 0-1, until" in ddtool("logs", "-n", "1").stderr
    assert ddtool("diag", "disable", minidiag.NAME, "--yes", "--restart").returncode == 0
    assert status()["patches"] == []


def test_another_unit_on_the_same_environment_has_to_be_named(deployed: Sandbox) -> None:
    """Also one that does not run: it would load the patched file at its next start."""
    path = "/etc/systemd/system/other.service"
    output(
        deployed,
        f"cat > {path}",
        input=f"[Service]\nExecStart={mini.VENV}/bin/python -m sglang.launch_server\n",
    )
    done = ddtool("diag", "enable", minidiag.NAME, "--yes")
    assert done.returncode == 2 and "next: add --also-affects other" in done.stderr
    plan = ddtool("diag", "run", minidiag.NAME, "--dry-run", "--also-affects", "other")
    assert plan.returncode == 0 and "other (stopped)" in plan.stderr
    output(deployed, f"rm {path}")
