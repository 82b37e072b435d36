"""The demo, whole: real SGLang on the CPU, deployed over SSH, diagnosed, restored, rolled back and removed.

One service through its life, in the order of these tests; a start takes 15 to 25 seconds on a quiet machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.cli import data, ddtool, ok
from support.remote import output
from support.tree import differences, snapshot, without_times

from ddtool.sandbox import Sandbox, down
from ddtool.sandbox.image import engine_layers

pytestmark = [pytest.mark.host, pytest.mark.engine, pytest.mark.timeout(600)]

UNIT = "sglang-demo"
RUNNER = "/opt/sglang/venv/lib/python3.11/site-packages/sglang/srt/model_executor/cuda_graph_runner.py"
PATIENT = 580.0


@pytest.fixture(scope="module")
def demo(boot: object) -> Iterator[Sandbox]:
    host = boot("demo-life", layers=engine_layers(print))  # type: ignore[operator]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", "demo")
        yield host
    down(host.name)


@pytest.fixture(scope="module")
def before(demo: Sandbox) -> dict[str, list[object]]:
    return snapshot(demo)


@pytest.fixture(scope="module")
def wheel_sha(demo: Sandbox) -> str:
    return output(demo, f"sha256sum < {RUNNER}")


@pytest.fixture(scope="module")
def deployed(demo: Sandbox, before: dict[str, list[object]], wheel_sha: str) -> Sandbox:
    said = ddtool("deploy", "demo", "--yes", timeout=PATIENT)
    assert said.returncode == 0, said.stderr
    return demo


def test_it_generates_and_names_its_stand_ins(deployed: Sandbox) -> None:
    answer = data("generate", "for name in os.listdir(", "--max-tokens", "16", timeout=PATIENT)
    assert answer["text"]
    assert answer["accept_length"] > 1
    status = data("status")
    assert status["health"]["ok"]
    assert {"sgl_kernel", "torchvision"} <= {item["name"] for item in status["standins"]}


def test_a_round_is_drawn_without_a_restart(deployed: Sandbox) -> None:
    run = output(deployed, f"systemctl show {UNIT} -p InvocationID")
    words = ("generate", "for name in os.listdir(", "--max-tokens", "16")
    answer = data(*words, "--tree", timeout=PATIENT)
    tree = answer["tree"]
    assert len(tree["nodes"]) == 31
    assert sum(node["accepted"] for node in tree["nodes"]) == tree["accepted"] >= 1
    assert tree["accepted"] == answer["accepted"][tree["round"]]
    tokens = answer["meta_info"]["completion_tokens"]
    assert sum(answer["accepted"]) + len(answer["accepted"]) == tokens - 1, "prefill says the first token"
    path = "".join(node["text"] for node in tree["nodes"] if node["accepted"])
    assert tree["root"] + path + tree["gained"] in answer["text"]
    shown = ok(*words, "--round", "1", timeout=PATIENT)
    assert answer["text"] in shown
    assert "31 nodes on" in shown
    assert output(deployed, f"ls /run/ddtool/{UNIT} | grep -c jsonl || true") == "0"
    assert output(deployed, f"systemctl show {UNIT} -p InvocationID") == run


def test_second_deploy_writes_nothing(deployed: Sandbox) -> None:
    first, run = snapshot(deployed), output(deployed, f"systemctl show {UNIT} -p InvocationID")
    result = data("deploy", "demo", "--yes")
    assert (result["changed"], result["round_trips"] <= 3) == (False, True)
    ok("deploy", "demo", "--dry-run")
    assert differences(first, snapshot(deployed)) == []
    assert output(deployed, f"systemctl show {UNIT} -p InvocationID") == run


def test_wrong_drafter_fails_preflight(deployed: Sandbox) -> None:
    first = snapshot(deployed)
    done = ddtool("deploy", "demo", "--yes", "--set", "drafter.path=/opt/sglang/models/nowhere")
    assert done.returncode == 4
    assert differences(first, snapshot(deployed)) == []


def test_diagnostic_is_loaded_after_one_restart(deployed: Sandbox) -> None:
    before_run = output(deployed, f"systemctl show {UNIT} -p InvocationID")
    ok("diag", "enable", "graph-copy", "--restart", "--yes", timeout=PATIENT)
    assert output(deployed, f"systemctl show {UNIT} -p InvocationID") != before_run
    status = data("diag", "status")
    (patch,) = status["patches"]
    assert (patch["name"], patch["on_disk"], patch["loaded"]) == ("graph-copy", True, [0])
    assert status["restart_needed"] is False
    assert '"event": "loaded"' in ok("logs", "--since", "invocation", "--grep", "ddtool-diag/1", "--raw")


@pytest.mark.slow  # in every run on the small service: tests/host/test_deploy.py
def test_hang_ends_at_its_deadline_with_stacks(deployed: Sandbox) -> None:
    done = ddtool("deploy", "demo", "--yes", "--set", "service.deadlines.start_s=8", timeout=PATIENT)
    # The deadline is the gate's alone, so the release is another one but the service is the same: too slow for 8 s.
    assert done.returncode == 7, done.stderr
    assert "not ready after 8 s" in done.stderr
    assert 'File "' in done.stderr
    assert data("status")["health"]["ok"]


@pytest.mark.slow
def test_crash_at_start_shows_its_own_words_and_the_former_release_runs(deployed: Sandbox) -> None:
    done = ddtool("deploy", "demo", "--yes", "--set", "server_args.max-total-tokens=-5", timeout=PATIENT)
    assert done.returncode == 7, done.stderr
    assert "RuntimeError: Not enough memory" in done.stderr and "oom_kv_pool" in done.stderr
    assert "exit status" in done.stderr
    assert data("status")["health"]["ok"]


def test_restore_ends_clean_by_hash(deployed: Sandbox, wheel_sha: str) -> None:
    ok("restore", "--restart", "--yes", timeout=PATIENT)
    assert output(deployed, f"sha256sum < {RUNNER}") == wheel_sha
    status = data("diag", "status")
    assert (status["patches"], status["restart_needed"]) == ([], False)
    assert [row["patches"] for row in status["ranks"]] == [[]]


def test_rollback(deployed: Sandbox) -> None:
    first = data("status")["release"]["id"]
    second = json.loads(
        ok("deploy", "demo", "--yes", "--json", "--set", "server_args.max-total-tokens=2048", timeout=PATIENT)
    )["release"]
    assert second != first
    ok("rollback", "--yes", timeout=PATIENT)
    assert data("status")["release"]["id"] == first


def test_remove_leaves_nothing(deployed: Sandbox, before: dict[str, list[object]]) -> None:
    ok("remove", "--yes", timeout=PATIENT)
    left = differences(without_times(before), without_times(snapshot(deployed)))
    ours = [path for path in left if "__pycache__" not in path and not path.startswith("/root/")]
    assert ours == []
