"""Which modules the agent loads for a request: all requests are known by their module, and a short one loads little."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from ddtool import agent
from ddtool.agent import ops
from ddtool.agent.registry import OPS

# What the facts for a plan, and so a deploy with nothing to do, have no business with.
HEAVY = ("toggle", "compose", "journal", "collect", "bundle", "executor", "steps", "gate")


def test_every_request_is_found_in_its_module() -> None:
    for path in Path(agent.__path__[0]).glob("[!_]*.py"):
        import_module(f"ddtool.agent.{path.stem}")
    modules = {name: handler.__module__.rpartition(".")[2] for name, handler in OPS.items()}
    assert modules == ops.MODULES
    assert all(ops.handler(name) is OPS[name] for name in OPS)
    assert ops.handler("no such request") is None


def test_facts_load_nothing_that_they_do_not_need() -> None:
    code = "import sys, json; from ddtool.agent import server, ops; ops.handler('facts'); print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "ddtool.agent.facts" in loaded
    assert {f"ddtool.agent.{name}" for name in HEAVY} & loaded == set()
    assert {"asyncio", "dataclasses", "inspect", "logging", "tempfile"} & loaded == set()
