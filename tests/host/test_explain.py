"""What people who look after a service see of it: why it is as it is, who did what, what releases differ in, and an
outage that waits for the requests in flight. Each situation is provoked on a real host with the mini service.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support.cli import DDTOOL, data, ddtool, ok
from support.remote import output, ssh_argv, until

from ddtool.cli import options
from ddtool.cli.explain import look_of
from ddtool.deploy.explain import explain
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

UNIT = "sglang-mini"
UNIT_FILE = f"/etc/systemd/system/{UNIT}.service"
PROFILE = str(mini.PROFILE)
KEY = "key-of-explain-5c1d"
REQUEST = """
import json, sys, urllib.request
body = {"text": "a b", "sampling_params": {"max_new_tokens": 3, "mini_slow": float(sys.argv[1])}}
request = urllib.request.Request("http://127.0.0.1:31000/generate", json.dumps(body).encode())
try:
    print(urllib.request.urlopen(request, timeout=60).status)
except OSError:
    print("cut off")
"""


@pytest.fixture(scope="module")
def served(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A host with the mini service's environment, and an operator whose current profile is the mini one."""
    mini.install(host)
    output(host, "cat > /root/request.py", input=REQUEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", PROFILE)
        yield host


@pytest.fixture(scope="module")
def deployed(served: Sandbox) -> Sandbox:
    ok("deploy", PROFILE, "--yes")
    return served


@pytest.fixture
def stranger(served: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Somebody with ssh to the host and no profile, none bound, none current. The value is the host's name."""
    monkeypatch.delenv("DDTOOL_PROFILE")
    monkeypatch.delenv("DDTOOL_HOST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return f"sandbox:{served.name}"


def explained() -> dict[str, Any]:
    """What `ddtool explain` tells, without the half second that a process of its own takes to begin."""
    with options.viewed(None, None, None) as viewing:
        return vars(explain(look_of(viewing, None, None)))


def request(host: Sandbox, seconds: float) -> subprocess.Popen[str]:
    """A completion that stays in flight for so long, seen there before this returns; its output is its status."""
    argv = ssh_argv(host, f"python3 /root/request.py {seconds}")
    sent = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    until(lambda: output(host, "ss -tnH state established '( dport = :31000 )'"))
    return sent


def test_nothing_is_there_yet(served: Sandbox) -> None:
    found = explained()
    assert (found["reason"], found["next_command"]) == ("not-deployed", "ddtool deploy")


def test_a_first_deploy_that_failed(served: Sandbox) -> None:
    assert ddtool("deploy", "--yes", "--set", "env.MINI_CRASH=start").returncode == 7
    found = explained()
    assert found["reason"] == "first-deploy-failed"
    assert found["facts"]["crash"]["cause"] and found["next_command"] == "ddtool crash last"


def test_a_stranger_without_a_service_to_see(stranger: str) -> None:
    done = ddtool("status", "--host", stranger)
    assert done.returncode == 2 and "has no service of ddtool" in done.stderr


def test_it_works(deployed: Sandbox) -> None:
    found = data("explain")
    assert (found["schema"], found["reason"], found["also"]) == ("ddtool.explain/1", "fine", [])
    assert found["round_trips"] == 1
    assert found["facts"]["requests"] == {"running": 0, "waiting": 0}


def test_a_stranger_sees_the_only_service_and_what_to_type(deployed: Sandbox, stranger: str) -> None:
    seen = data("status", "--host", stranger)
    assert seen["name"] == UNIT and seen["release"]["profile"] == "profile" and seen["round_trips"] <= 3
    told = data("explain", "--host", stranger, "--unit", UNIT)
    assert told["next_command"].endswith(f"-p profile --host {stranger}")
    assert data("releases", "--host", stranger)["unit"] == UNIT
    told = data("diag", "status", "--host", stranger)
    assert (told["unit"], told["patches"]) == (UNIT, []) and told["version"]
    assert data("crash", "last", "--host", stranger)["unit"] == UNIT
    shown = ok("logs", "--host", stranger, "--unit", UNIT, "-n", "3", "--json").splitlines()
    assert [json.loads(line)["schema"] for line in shown] == ["ddtool.record/1"] * 3


def test_a_stranger_reads_the_log_of_any_unit(deployed: Sandbox, stranger: str) -> None:
    """Of one that is not ddtool's nobody knows diagnostics, and says so where they are what was asked for."""
    done = ddtool("logs", "--host", stranger, "--unit", "ssh", "-n", "1")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
    asked = ddtool("diag", "status", "--host", stranger, "--unit", "ssh")
    assert asked.returncode == 2 and "no release of ssh" in asked.stderr


def test_with_two_services_a_stranger_is_asked_which(deployed: Sandbox, stranger: str) -> None:
    folder = "/var/lib/ddtool/services"
    output(
        deployed,
        f"mkdir {folder}/other && sed s/{UNIT}/other/ {folder}/{UNIT}/service.json > {folder}/other/service.json",
    )
    done = ddtool("explain", "--host", stranger)
    output(deployed, f"rm -r {folder}/other")
    assert done.returncode == 2
    assert f"{UNIT}: active" in done.stderr and "--unit" in done.stderr


def test_a_drain_waits_for_the_request_in_flight(deployed: Sandbox) -> None:
    """Meanwhile the host is locked, and explain says by whom."""
    sent = request(deployed, 4)
    waiting = subprocess.Popen(
        [*DDTOOL, "restart", "--yes", "--drain", "60", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found = until(lambda: (now := explained())["reason"] == "locked" and now)
    assert "restart sglang-mini" in found["sentence"]
    said, _ = waiting.communicate(timeout=60)
    drained = json.loads(said)["drained"]
    assert (drained["left"], drained["unknown"]) == (0, None)
    assert sent.communicate(timeout=60)[0].strip() == "200"


def test_a_drain_ends_with_its_time_and_says_whom_it_cut_off(deployed: Sandbox) -> None:
    sent = request(deployed, 50)
    done = ddtool("restart", "--yes", "--drain", "1")
    assert done.returncode == 0
    assert "1 in flight now (1 running, 0 waiting)" in done.stdout
    assert "drain: 1 in flight after 1 s, cut off by the stop" in done.stderr
    assert sent.communicate(timeout=60)[0].strip() == "cut off"


def test_killed_while_it_drains(deployed: Sandbox) -> None:
    before = output(deployed, f"systemctl show {UNIT} -p InvocationID")
    sent = request(deployed, 50)
    draining = subprocess.Popen(
        [*DDTOOL, "restart", "--yes", "--drain", "60"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert draining.stderr
    assert any("in flight: 1 running" in line for line in draining.stderr)
    output(deployed, "systemctl kill -s KILL 'ddtool-txn-*'")
    draining.communicate(timeout=60)
    found = explained()
    assert (found["reason"], found["next_command"]) == ("killed", "ddtool start")
    ok("start", "--yes")
    assert explained()["reason"] == "fine"
    assert output(deployed, f"systemctl show {UNIT} -p InvocationID") == before
    sent.kill()
    sent.communicate()


def test_a_unit_edited_by_hand(deployed: Sandbox) -> None:
    output(deployed, f"echo '# mine' >> {UNIT_FILE}")
    found = explained()
    output(deployed, f"sed -i '$d' {UNIT_FILE}; systemctl daemon-reload")
    assert found["reason"] == "unit-edited"
    assert [item["reason"] for item in found["also"]] == ["unit-not-reread"]


def test_crashes_and_then_orphans_and_then_stopped(deployed: Sandbox) -> None:
    output(deployed, f"systemctl kill -s KILL {UNIT}")
    until(lambda: output(deployed, f"systemctl show {UNIT} -p SubState --value") == "auto-restart")
    assert explained()["reason"] == "crash-loop"
    output(deployed, f"systemctl stop {UNIT}")
    assert explained()["reason"] == "crashed"
    ok("start", "--yes")
    ok("stop", "--yes")
    found = explained()
    assert found["reason"] == "stopped" and found["facts"]["last"]["who"] in found["sentence"]
    left = "bash -c 'exec -a sglang::scheduler_TP7 sleep 300' >/dev/null 2>&1 & sleep 0.2; echo $!"
    pid = output(deployed, left)
    found = explained()
    assert found["reason"] == "orphans"
    assert f"ps -o pid,user,lstart,args -p {pid}" in found["next_command"]
    proof = f"/run/ddtool/{UNIT}/{pid}-$(cut -d' ' -f22 /proc/{pid}/stat).json"
    output(deployed, f"mkdir -p /run/ddtool/{UNIT} && echo {{}} > {proof}")
    assert explained()["next_command"].endswith(f"'kill -9 {pid}'")
    output(deployed, f"kill -9 {pid}")


def test_releases_differ_in_what_was_set_and_no_secret_is_shown(deployed: Sandbox) -> None:
    deploy = ("deploy", PROFILE, "--yes", "--set", "service.api_key=${env:MINI_KEY}")
    ok(*deploy, "--set", "env.MINI_SLOW_START=0.1", env={"MINI_KEY": KEY})
    ok(*deploy, "--set", "server_args.context-length=2048", env={"MINI_KEY": KEY + "-2"})
    found = data("releases", "diff", "previous", "current")
    parts = {item["part"]: item["diff"] for item in found["differs"]}
    assert set(parts) == {"config", "environment", "secrets"}
    assert "+context-length: 2048" in parts["config"]
    assert "-MINI_SLOW_START=0.1" in parts["environment"]
    assert "MINI_KEY: fingerprint" in parts["secrets"]
    assert KEY not in json.dumps(found)
    assert data("releases", "diff", "current", "current")["differs"] == []
    done = ddtool("releases", "diff", "0099", "current")
    assert done.returncode == 2 and "kept on the host" in done.stderr


def test_a_service_with_a_key_says_what_is_in_flight(deployed: Sandbox) -> None:
    assert data("restart", "--drain", "5", "--yes")["drained"]["unknown"] is None


def test_audit_tells_who_did_what(deployed: Sandbox) -> None:
    found = data("audit", "--since", "1h")["entries"]
    kinds = [item["kind"] for item in found]
    assert kinds[:2] == ["deploy", "deploy"] and {"restart", "start", "stop"} <= set(kinds)
    assert [item["ok"] for item in found[:2]] == [False, True]
    assert {item["from"]["login"] for item in found} == {"root"}
    assert all(item["from"]["address"] for item in found)
    killed = next(item for item in found if item["error"] == "its executor was killed")
    assert killed["what"].startswith("drain 60 s")
    assert len(data("audit", "-n", "2")["entries"]) == 2
    assert "failed, rolled back" in ok("audit", "--all", "--since", "1h")
    assert ddtool("audit", "--since", "soon").returncode == 2
