"""Crashes of a real unit: what deploy, crash last, logs and status say, how often, and what a bundle holds."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support.cli import DDTOOL, data, ddtool, ok
from support.remote import output, until

from ddtool.crash import bundle
from ddtool.sandbox import Sandbox, down
from ddtool.sandbox.image import engine_layers

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

UNIT = "sglang-mini"
PROFILE = str(mini.PROFILE)
LOADING = "MINI_CRASH=start: the weights cannot be loaded"


@pytest.fixture(scope="module")
def served(host: Sandbox) -> Iterator[Sandbox]:
    mini.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", PROFILE)
        yield host


@pytest.fixture(scope="module")
def failed(served: Sandbox) -> str:
    """stderr of a first deploy that crashed at its start."""
    return crashing_deploy("start")


@pytest.fixture(scope="module")
def deployed(failed: str, served: Sandbox) -> Sandbox:
    ok("deploy", PROFILE, "--yes")
    return served


def crashing_deploy(when: str) -> str:
    done = ddtool("deploy", PROFILE, "--yes", "--set", f"env.MINI_CRASH={when}")
    assert done.returncode == 7, done.stderr
    return done.stderr


def last() -> dict[str, Any]:
    crash: dict[str, Any] = data("crash", "last")["crash"]
    return crash


def test_a_failed_deploy_shows_the_verdict(failed: str) -> None:
    page = failed[failed.index("first cause") :]
    assert LOADING in page
    assert "crash last" in page and "crash bundle" in page  # the error's next command
    assert "1 time" in page


def test_crash_last_says_it_again(failed: str) -> None:
    crash = last()
    assert LOADING in crash["first_cause"]["text"]
    assert crash["category"] != "no_crash" and crash["fingerprint"]
    assert crash["run"]["unit"] == UNIT and crash["seen"]["count"] == 1
    assert LOADING in ok("crash", "last")


def test_the_same_crash_again_is_recognised(failed: str) -> None:
    before = last()
    assert "2 times" in crashing_deploy("start")
    again = last()
    assert again["run"]["invocation"] != before["run"]["invocation"]
    assert again["fingerprint"] == before["fingerprint"]
    assert again["seen"]["count"] == 2
    assert again["seen"]["first_unix"] == before["seen"]["first_unix"] < again["seen"]["last_unix"]


def test_a_service_that_runs_well_has_no_new_crash(deployed: Sandbox) -> None:
    ended = last()["run"]["unix"]
    ok("generate", "one two three")
    ok("restart", "--yes")
    status = data("status")
    assert status["healthy"] and status["round_trips"] <= 3
    assert status["crash"]["unix"] == ended and status["crash"]["seen"]["count"] == 2
    assert "seen 2 times" in ok("status")


def test_a_bundle_goes_round(deployed: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "crash.tar.gz"
    assert ok("crash", "bundle", "--out", str(path)).strip() == str(path)
    found = bundle.read(path)
    wanted = {
        "journal.jsonl",
        "kernel.txt",
        "unit.txt",
        "argv.txt",
        "environment.txt",
        "processes.txt",
        "shm.txt",
    }
    wanted |= {"disk.txt", "installation.json", "release.json", "proofs.json", "profile.yaml", "verdict.json"}
    assert wanted <= set(found.files)
    assert set(found.files) == set(found.manifest["files"])
    assert found.json("installation.json")["sglang"]["modified"] == []
    offline = data("crash", "classify", str(path))
    assert offline["schema"] == "ddtool.crash.classify/1"
    assert {**found.json("verdict.json")} == offline
    assert offline["fingerprint"] == last()["fingerprint"]
    assert LOADING in ok("crash", "classify", str(path), env={"DDTOOL_HOST": "nowhere.invalid"})


def test_a_bundle_of_the_running_service_has_stacks(deployed: Sandbox, tmp_path: Path) -> None:
    before = last()
    path = tmp_path / "now.tar.gz"
    ok("crash", "bundle", "--now", "--out", str(path))
    found = bundle.read(path)
    stacks = [found.files[name].decode() for name in found.files if name.endswith(".stacks")]
    assert found.manifest["result"] == "running" and any("scheduler.py" in text for text in stacks)
    assert data("crash", "classify", str(path))["category"] == "no_crash"
    assert last() == before  # it is no crash, and counts as none


def test_logs_follow_tells_the_verdict_when_the_unit_dies(deployed: Sandbox) -> None:
    """Behind the run's last record, once for each run, and to whoever follows one rank only as well."""
    folder = f"/etc/systemd/system/{UNIT}.service.d"
    switch = "[Service]\nEnvironment=MINI_CRASH=on_generate\n"
    output(
        deployed,
        f"mkdir -p {folder} && cat > {folder}/x.conf && systemctl daemon-reload && systemctl restart {UNIT}",
        input=switch,
    )
    until(lambda: json.loads(ddtool("status", "--json").stdout)["healthy"])
    followers = [Follower("logs", "--follow"), Follower("logs", "--follow", "--rank", "1", "--json")]
    for follower in followers:
        until(lambda follower=follower: follower.out)
    ddtool("generate", "one")
    cause = "AttributeError: 'NoneType' object has no attribute 'dtype'"
    until(
        lambda: "first cause" in "".join(followers[0].err) and cause in "".join(followers[0].err), timeout=40
    )
    verdicts = until(
        lambda: [line for line in followers[1].out if "ddtool.crash.classify/1" in line], timeout=40
    )
    assert json.loads(verdicts[0])["seen"]["count"] == 1
    for follower in followers:
        follower.stop()
    assert "".join(followers[0].err).count("first cause") == 1
    output(deployed, f"rm {folder}/x.conf; systemctl daemon-reload; systemctl stop {UNIT}")


class Follower:
    """A ddtool that goes on; what it prints is read as it comes."""

    def __init__(self, *args: str) -> None:
        self.out: list[str] = []
        self.err: list[str] = []
        self._process = subprocess.Popen(
            [*DDTOOL, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for stream, kept in ((self._process.stdout, self.out), (self._process.stderr, self.err)):
            threading.Thread(target=kept.extend, args=(stream,), daemon=True).start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


def test_remove_takes_the_history_too(deployed: Sandbox) -> None:
    ok("remove", "--yes")
    assert output(deployed, "ls /var/lib/ddtool 2>&1; true").endswith("No such file or directory")
    assert data("crash", "last")["crash"] is None


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_a_bad_and_a_good_start_of_real_sglang(boot: Any, tmp_path: Path) -> None:
    host = boot("crash-demo", layers=engine_layers(print))
    env = {"DDTOOL_HOST": f"sandbox:{host.name}", "DDTOOL_PROFILE": "demo"}
    done = ddtool("deploy", "demo", "--yes", "--set", "server_args.max-total-tokens=-5", env=env, timeout=400)
    assert done.returncode == 7 and "oom_kv_pool / static-fraction-too-small" in done.stderr, done.stderr
    ok("deploy", "demo", "--yes", env=env, timeout=400)
    path = tmp_path / "good.tar.gz"
    ok("crash", "bundle", "--now", "--out", str(path), env=env)
    assert data("crash", "classify", str(path))["category"] == "no_crash"
    assert json.loads(bundle.read(path).files["installation.json"])["sglang"]["modified"] == []
    down(host.name)
