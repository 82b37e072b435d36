"""Which modules the agent loads for a request: all requests are known by their module, and a short one loads little."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ddtool import agent
from ddtool.agent import ops
from ddtool.agent.registry import OPS

# What a deploy with nothing to do, and status, have no business with.
HEAVY = ("toggle", "compose", "journal", "collect", "bundle", "executor", "steps", "gate")


def test_every_requestis_found_in_its_module() -> None:
    for path in Path(agent.__path__[0]).glob("[!_]*.py"):
        import_module(f"ddtool.agent.{path.stem}")
    modules = {name: handler.__module__.rpartition(".")[2] for name, handler in OPS.items()}
    assert modules == ops.MODULES
    assert all(ops.handler(name) is OPS[name] for name in OPS)
    assert ops.handler("no such request") is None


@pytest.mark.parametrize("request_name", ["facts", "status"])
def test_a_look_loads_nothing_that_it_does_not_need(request_name: str) -> None:
    code = f"import sys; from ddtool.agent import server, ops; ops.handler({request_name!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert f"ddtool.agent.{ops.MODULES[request_name]}" in loaded
    assert {f"ddtool.agent.{name}" for name in HEAVY} & loaded == set()
    assert {"asyncio", "dataclasses", "inspect", "logging", "tempfile"} & loaded == set()
