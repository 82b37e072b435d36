"""kill -9 of the executor at ten points on real SGLang: the same promises as on the small service, a start at a time.

Slow: every kill costs a start or two of SGLang. tests/host/test_kill.py has the full matrix on the small service.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support import doctored
from support.cli import data, ok
from support.remote import output
from support.world import ignore

from ddtool import profile
from ddtool.deploy.deployment import Deployment
from ddtool.diagnostics.definition import load as load_patch
from ddtool.errors import DdtoolError
from ddtool.sandbox import Sandbox, down
from ddtool.sandbox.image import engine_layers

pytestmark = [pytest.mark.host, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600)]

FILES = [
    "/etc/systemd/system/sglang-demo.service",
    "/var/lib/ddtool/services/sglang-demo/service.json",
    "/opt/sglang/venv/lib/python3.11/site-packages/sglang/srt/model_executor/cuda_graph_runner.py",
]
# Acts of the executor, spread over what each change does (tests/host/test_kill.py counts about 185, 115 and 110).
POINTS = {"deploy": (14, 60, 100, 140), "diag enable": (14, 40, 70), "restore": (14, 40, 70)}
CHANGED = ["server_args.max-total-tokens=2048"]


@pytest.fixture(scope="module")
def demo(boot: Any) -> Iterator[Sandbox]:
    host = boot("demo-kill", layers=engine_layers(print))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", "demo")
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        ok("deploy", "demo", "--yes", timeout=600)
        yield host
    down(host.name)


def hashes(host: Sandbox) -> list[str]:
    return output(host, f"sha256sum {' '.join(FILES)}").splitlines()


def request(operation: str, venv: str) -> dict[str, Any]:
    if operation == "restore":
        return {"op": "restore", "venv": venv}
    return {
        "op": "toggle",
        "venv": venv,
        "enable": [load_patch("graph-copy").to_json()],
        "disable": [],
        "who": "test",
    }


def attempt(host: Sandbox, operation: str, at: int) -> dict[str, Any] | None:
    """Do the change with an executor that dies at its `at`-th act; what was hit, or None when it was over before."""
    doctored.arm(host, "txn", at)
    chosen = profile.load("demo", CHANGED if operation == "deploy" else ())
    with Deployment(chosen, f"sandbox:{host.name}") as deployment:
        if operation == "deploy":
            plan = deployment.plan_deploy()
        else:
            plan = deployment.plan_toggle(operation, request(operation, chosen.engine.venv), restart=True)
        try:
            deployment.apply(plan, ignore)
        except DdtoolError:
            return doctored.fired(host)
    doctored.disarm(host)
    return None


@pytest.mark.parametrize("operation", POINTS)
def test_killed_on_real_sglang(demo: Sandbox, operation: str) -> None:
    if operation == "restore":
        ok("diag", "enable", "graph-copy", "--restart", "--yes", timeout=600)
    before = hashes(demo)
    for at in POINTS[operation]:
        hit = attempt(demo, operation, at)
        assert hit, f"{operation} was over before act {at}"
        ok("restart", "--yes", timeout=600)  # the next changing command settles, then does its own work
        status = data("status")
        assert status["transactions"] == {"lock": None, "dead": []}, hit
        assert status["health"]["ok"], hit
        assert output(demo, "ls /var/lib/ddtool/txn.open 2>&1 || true").endswith(
            "No such file or directory"
        ), hit
        now = hashes(demo)
        print(operation, at, "undone" if now == before else "finished", hit)
        if now != before:  # the commit's line was on disk, and only a restore's last point comes that late
            assert hit["in"][:2] == ["append_line", "record"], hit
            assert (operation, at) == ("restore", POINTS[operation][-1]), hit
            assert data("diag", "status")["patches"] == [], hit
