"""The main path on a real host: deploy, no-op, failures, roll back, remove. The service is tests/support/mini."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from types import ModuleType

import pytest
from support import mini
from support.cli import DDTOOL, data, ddtool, ok
from support.remote import output, until
from support.tree import differences, snapshot, without_times

from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host

UNIT = "sglang-mini"
PROFILE = str(mini.PROFILE)


@pytest.fixture(scope="module")
def served(host: Sandbox) -> Iterator[Sandbox]:
    """A host with the mini service's environment, nothing of ddtool on it yet."""
    mini.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", PROFILE)
        yield host


@pytest.fixture(scope="module")
def empty(served: Sandbox) -> dict[str, list[object]]:
    """The host's disk before the first deploy."""
    return snapshot(served)


@pytest.fixture(scope="module")
def deployed(served: Sandbox, empty: dict[str, list[object]]) -> Sandbox:
    ok("deploy", PROFILE, "--yes")
    return served


def invocation(host: Sandbox) -> str:
    return output(host, f"systemctl show {UNIT} -p InvocationID --value")


def test_dry_run_touches_nothing(served: Sandbox, empty: dict[str, list[object]]) -> None:
    shown = ok("deploy", PROFILE, "--dry-run")
    assert "ExecStart=" in shown
    assert differences(empty, snapshot(served)) == []


def test_deploy_runs_the_service(deployed: Sandbox) -> None:
    status = data("status")
    assert status["unit"]["active"] == "active"
    assert status["unit"]["drop_ins"] == []  # restarts are allowed again after the gate
    assert status["unit"]["enabled"] == "enabled"
    assert status["health"]["ok"]
    assert status["round_trips"] <= 3


def test_second_deploy_writes_nothing_and_restarts_nothing(deployed: Sandbox) -> None:
    before, run = snapshot(deployed), invocation(deployed)
    result = data("deploy", PROFILE, "--yes")
    assert result["changed"] is False
    assert result["round_trips"] <= 3
    assert differences(before, snapshot(deployed)) == []
    assert invocation(deployed) == run


def test_generate_answers_from_the_service(deployed: Sandbox) -> None:
    answer = data("generate", "one two three", "--max-tokens", "9")
    assert answer["text"]
    assert answer["accept_length"] > 1


def test_changed_profile_makes_a_release_and_rollback_goes_back(deployed: Sandbox) -> None:
    first = data("releases")["releases"][0]["id"]
    result = data("deploy", PROFILE, "--yes", "--set", "server_args.context-length=2048")
    assert result["changed"] is True
    releases = {item["id"]: item["role"] for item in data("releases")["releases"]}
    assert releases == {result["release"]: "current", first: "previous"}
    data("rollback", "--yes")
    releases = {item["id"]: item["role"] for item in data("releases")["releases"]}
    assert releases == {result["release"]: "previous", first: "current"}
    assert data("status")["health"]["ok"]


def test_wrong_drafter_fails_preflight_and_touches_nothing(deployed: Sandbox) -> None:
    before, run = snapshot(deployed), invocation(deployed)
    done = ddtool("deploy", PROFILE, "--yes", "--set", "drafter.path=/opt/mini/nowhere")
    assert done.returncode == 4
    assert "/opt/mini/nowhere" in done.stderr
    assert differences(before, snapshot(deployed)) == []
    assert invocation(deployed) == run


def test_crash_at_start_is_reported_and_the_former_release_runs_again(deployed: Sandbox) -> None:
    current = data("status")["release"]["id"]
    done = ddtool("deploy", PROFILE, "--yes", "--set", "env.MINI_CRASH=start")
    assert done.returncode == 7
    assert "exit status 3" in done.stderr
    assert "Traceback" in done.stderr
    status = data("status")
    assert status["release"]["id"] == current
    assert status["health"]["ok"]
    assert status["evidence"][0]["unit"] == UNIT


def test_crash_under_the_gates_load_rolls_back(deployed: Sandbox) -> None:
    done = ddtool("deploy", PROFILE, "--yes", "--set", "env.MINI_CRASH=on_generate")
    assert done.returncode == 7
    assert data("status")["health"]["ok"]


def test_hang_ends_at_its_deadline_with_stacks(deployed: Sandbox) -> None:
    done = ddtool(
        *("deploy", PROFILE, "--yes", "--set", "env.MINI_HANG=start"),
        *("--set", "service.deadlines.start_s=4"),
    )
    assert done.returncode == 7
    assert "not ready after 4 s" in done.stderr
    assert 'File "' in done.stderr  # faulthandler's stacks
    assert "sched_hang / hang-load" in done.stderr
    assert "stacks: server: sglang/srt/" in " ".join(done.stderr.split())  # the verdict's lines are wrapped
    assert data("status")["health"]["ok"]


def test_a_foreign_unit_is_shown_and_left_alone(deployed: Sandbox) -> None:
    path = "/etc/systemd/system/mine.service"
    unit = "[Service]\nExecStart=/bin/sleep infinity\n"
    output(deployed, f"cat > {path} && systemctl daemon-reload && systemctl start mine", input=unit)
    done = ddtool("deploy", PROFILE, "--yes", "--set", "service.unit=mine", "--set", "service.port=31009")
    assert done.returncode == 6
    assert "/bin/sleep infinity" in done.stderr and "--take-over" in done.stderr
    assert output(deployed, f"cat {path}; systemctl is-active mine") == unit + "active"
    output(deployed, f"systemctl stop mine; rm {path}; systemctl daemon-reload")


def test_hand_edited_unit_is_drift(deployed: Sandbox) -> None:
    path = f"/etc/systemd/system/{UNIT}.service"
    original = output(deployed, f"cat {path}")
    output(deployed, f"sed -i s/KillMode=mixed/KillMode=process/ {path}")
    done = ddtool("deploy", PROFILE, "--yes", "--set", "server_args.context-length=1024")
    assert done.returncode == 6
    output(deployed, f"cat > {path}; systemctl daemon-reload", input=original + "\n")


def test_taken_port_fails_before_anything_is_stopped(deployed: Sandbox) -> None:
    output(deployed, "systemd-run --quiet --unit squatter python3 -m http.server 31007 --bind 127.0.0.1")
    until(lambda: "31007" in output(deployed, "ss -ltn"))
    run = invocation(deployed)
    done = ddtool("deploy", PROFILE, "--yes", "--set", "service.port=31007")
    assert done.returncode == 4
    assert "31007" in done.stderr
    assert invocation(deployed) == run
    output(deployed, "systemctl stop squatter")


def test_second_operator_is_told_who_holds_the_lock(deployed: Sandbox) -> None:
    slow = subprocess.Popen(
        [
            *(*DDTOOL, "deploy", PROFILE, "--yes", "--set", "env.MINI_SLOW_START=12"),
            *("--set", "service.deadlines.start_s=60"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: json.loads(ddtool("status", "--json").stdout)["transactions"]["lock"])
    done = ddtool("restart", "--yes")
    assert done.returncode == 5
    assert "holds this host since" in done.stderr and "deploy sglang-mini" in done.stderr
    assert slow.wait(60) == 0
    ok("rollback", "--yes")


def test_a_cut_link_loses_nothing_and_attach_shows_the_end(deployed: Sandbox, faults: ModuleType) -> None:
    watched = subprocess.Popen(
        [*DDTOOL, "deploy", PROFILE, "--yes", "--set", "env.MINI_SLOW_START=3"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watched.stderr
    for line in watched.stderr:
        if "wait until it is healthy" in line:
            break
    faults.cut(deployed)
    told = watched.stderr.read()
    assert watched.wait(60) == 3
    assert "goes on on the host" in told and "--attach" in told
    assert data("deploy", "--attach")["ok"]
    assert data("status")["health"]["ok"]
    ok("rollback", "--yes")


def test_second_deploy_with_a_secret_is_a_no_op_and_another_value_is_not(deployed: Sandbox) -> None:
    deploy = ("deploy", PROFILE, "--yes", "--set", "service.api_key=${env:MINI_KEY}")
    changed = [
        data(*deploy, env={"MINI_KEY": key})["changed"]
        for key in ("key-number-1", "key-number-1", "key-number-2")
    ]
    assert changed == [True, False, True]
    ok("deploy", PROFILE, "--yes")


def test_reboot_brings_the_service_back(deployed: Sandbox, faults: ModuleType) -> None:
    faults.power_reset(deployed)
    until(lambda: ddtool("status").returncode == 0, timeout=30, step=0.5)


def test_remove_leaves_nothing(deployed: Sandbox, empty: dict[str, list[object]]) -> None:
    ok("remove", "--yes")
    left = differences(without_times(empty), without_times(snapshot(deployed)))
    assert [path for path in left if not path.endswith(".pyc") and "__pycache__" not in path] == []
    assert (
        output(deployed, f"ls /run/ddtool 2>&1; systemctl is-enabled {UNIT} 2>&1; true").count("No such file")
        == 2
    )


def test_failed_first_deploy_leaves_the_host_as_it_was(
    served: Sandbox, empty: dict[str, list[object]]
) -> None:
    done = ddtool("deploy", PROFILE, "--yes", "--set", "env.MINI_CRASH=start")
    assert done.returncode == 7
    assert json.loads(ddtool("status", "--json").stdout)["release"] is None
    assert output(served, f"systemctl show {UNIT} -p LoadState --value") == "not-found"
    assert output(served, "ls /var/lib/ddtool/evidence")
