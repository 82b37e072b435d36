"""A stranger's hand-made service: adopted, redeployed, diagnosed, restored, given back with its unit byte for byte."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import handmade, mini, minidiag
from support.cli import data, ddtool, ok
from support.handmade import NAME, invocation, look
from support.remote import output, until
from support.tree import differences, snapshot, without_times

from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host

# What no unit says: how to judge the service, and that this one is quick.
GATE = """
health: {prompts: [one two three], max_tokens: 9, serial: 1, concurrent: 2, deadline_s: 20, accept_length_floor: 2}
"""


@pytest.fixture(scope="module")
def served(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    profile = tmp_path_factory.mktemp("profile") / "k26.yaml"
    mini.install(host)
    handmade.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", str(profile))
        patch.setenv("SGLANG_API_KEY", handmade.KEY)
        patch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrst")
        yield host


def test_read_as_a_profile(served: Sandbox) -> None:
    """What comes out can be deployed; nothing on the host changes, and no secret leaves it."""
    tree, run = snapshot(served), invocation(served)
    path = os.environ["DDTOOL_PROFILE"]
    done = ddtool("profile", "from-unit", f"sandbox:{served.name}", NAME, "--out", path)
    text = Path(path).read_text()
    assert done.returncode == 0, done.stderr
    assert differences(tree, snapshot(served)) == [] and invocation(served) == run
    assert handmade.KEY not in done.stderr + text and "hf_abc" not in done.stderr + text
    for kept in ("MINI_NOTE: two words", "HF_TOKEN: ${env:HF_TOKEN}", "stop_s: 20", "tp: 2", "max_bs: 4"):
        assert kept in text, text
    for said in ("Nice=5", "kimi.service", "nvidia-persistenced", "Restart=always"):
        assert said in done.stderr, done.stderr
    Path(path).write_text(text + GATE)


def test_refused_without_being_asked_and_a_dry_run_touches_nothing(served: Sandbox) -> None:
    tree = snapshot(served)
    refused = ddtool("deploy", "--yes")
    assert refused.returncode == 6
    shown = ok("deploy", "--take-over", "--dry-run")
    assert "outage: none" in shown
    at_once = ok("deploy", "--take-over", "--restart", "--drain", "5", "--dry-run")
    assert "(0 now)" in at_once  # asked with the key that the process was started with
    assert handmade.KEY not in refused.stderr + shown + at_once
    assert differences(tree, snapshot(served)) == []


def test_taken_over_and_given_back_without_a_restart(served: Sandbox) -> None:
    before, tree, run = look(served), snapshot(served), invocation(served)
    assert data("deploy", "--take-over", "--yes")["changed"]
    assert output(served, f"head -1 {handmade.UNITS}/{NAME}.service").startswith("# managed by ddtool")
    assert not data("deploy", "--yes")["changed"]
    elsewhere = ("--set", "service.port=31005")  # what waits may answer there; what runs does not
    ok("deploy", *elsewhere, "--take-over", "--yes")
    status = ok("status")  # exit 0: it answers
    assert "The process of before still runs: ddtool restart" in status
    refused = ddtool("remove", "--yes")
    assert refused.returncode == 2 and "--restore-unit" in refused.stderr
    assert "outage: none" in ok("remove", "--restore-unit", "--yes")
    assert invocation(served) == run
    assert look(served) == before
    assert differences(without_times(tree), without_times(snapshot(served))) == []


def test_story(served: Sandbox) -> None:
    """Adopted, failed, restarted, redeployed, diagnosed, restored, given back."""
    before, tree, run = look(served), snapshot(served), invocation(served)
    ok("deploy", "--set", "env.MINI_CRASH=start", "--take-over", "--yes")
    assert ddtool("restart", "--yes").returncode == 7
    failed = data("status")
    assert failed["unit"]["active"] == "active" and failed["runs"] is None
    assert invocation(served) != run  # the original, started again
    again = invocation(served)
    ok("deploy", "--take-over", "--yes")  # another release, still without an outage
    assert invocation(served) == again
    drained = data("restart", "--drain", "5", "--yes")["drained"]
    assert (drained["left"], drained["unknown"]) == (0, None)
    status = data("status")
    assert status["runs"] == status["release"]["id"] and status["health"]["ok"]
    ok("deploy", "--set", "server_args.context-length=2048", "--yes")
    minidiag_run("diag", "enable", minidiag.NAME, "--restart", "--yes")
    assert data("status")["diagnostics"]["patches"]
    minidiag_run("diag", "disable", minidiag.NAME, "--yes")
    assert not data("status")["diagnostics"]["patches"]
    minidiag_run("diag", "enable", minidiag.NAME, "--yes")
    minidiag_run("restore", "--yes")
    plan = ok("remove", "--restore-unit", "--yes")
    assert "with its original unit" in plan
    until(lambda: f":{handmade.PORT}" in output(served, "ss -ltn"))
    assert look(served) == before
    left = differences(without_times(tree), without_times(snapshot(served)))
    assert [path for path in left if not path.endswith(".pyc") and "__pycache__" not in path] == []


def test_given_back_by_hand(served: Sandbox) -> None:
    """With what docs/takeover.md says, when ddtool is gone."""
    before, run = look(served), invocation(served)
    ok("deploy", "--take-over", "--yes")
    text = (Path(__file__).parents[2] / "docs" / "takeover.md").read_text()
    script = text.partition("```sh\n")[2].partition("```")[0].replace("- UNIT", f"- {NAME}")
    output(served, "bash -e", input=script)
    assert look(served) == before and invocation(served) == run
    output(served, "rm -rf /var/lib/ddtool")


def test_other_names_and_passing_units_are_refused(served: Sandbox) -> None:
    alias = ddtool("deploy", "--set", "service.unit=kimi", "--take-over", "--yes")
    assert alias.returncode == 4 and f"another name of {NAME}.service" in alias.stderr
    output(served, "systemd-run -q --unit passing sleep 600")
    passing = ddtool(
        "deploy", "--set", "service.unit=passing", "--set", "service.port=31009", "--take-over", "--yes"
    )
    assert passing.returncode == 4 and "systemd-run" in passing.stderr
    output(served, "systemctl stop passing")


@pytest.mark.slow
def test_a_linked_unit_that_did_not_run(served: Sandbox) -> None:
    """Its file lies elsewhere and is not touched; it is neither enabled nor running afterwards."""
    output(served, f"systemctl stop {NAME}; mkdir -p /root/units")
    output(
        served,
        "cat > /root/units/linked.service && systemctl link -q /root/units/linked.service",
        input=handmade.UNIT,
    )
    before = {**look(served, "linked"), "file": output(served, "sha256sum /root/units/linked.service")}
    with_name = ("--set", "service.unit=linked")
    ok("deploy", *with_name, "--take-over", "--yes")
    status = data("status", "--unit", "linked")
    assert status["runs"] == status["release"]["id"] and status["unit"]["enabled"] == "enabled"
    assert output(served, f"stat -c %F {handmade.UNITS}/linked.service") == "regular file"
    path = Path(os.environ["DDTOOL_PROFILE"])
    path.with_name("linked.yaml").write_text("extends: k26\nservice: {unit: linked}\n")
    ok("remove", "-p", str(path.with_name("linked.yaml")), "--restore-unit", "--yes")
    assert {
        **look(served, "linked"),
        "file": output(served, "sha256sum /root/units/linked.service"),
    } == before
    assert output(served, "systemctl show linked -p ActiveState --value") == "inactive"


def minidiag_run(*args: str) -> None:
    done = subprocess.run(
        [*minidiag.COMMAND, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
