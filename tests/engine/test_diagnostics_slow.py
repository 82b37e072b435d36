"""nan-guard and mem-marks in one real SGLang that serves DDTREE on the CPU with the engine that ddtool ships."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ddtree import BUDGET, DDTREE, environment, inside, install
from support.engine_server import EngineServer

from ddtool.agent.compose import compose
from ddtool.agent.outcome import NO_FINDING
from ddtool.diagnostics import definition
from ddtool.sandbox.image import VENV

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1800)]
FILE = "sglang/srt/model_executor/model_runner.py"
POISON = "/run/ddtree/poison"
# Goes in before nan-guard's own line: patches on one statement are ordered by name
FAULT = {
    "name": "a-fault",
    "targets": [
        {
            "file": FILE,
            "function": "ModelRunner.forward",
            "releases": ["0.5.12.post1"],
            "ast_sha256": {},
            "append": None,
            "edits": [
                {
                    "anchor": 'output.expert_distribution_metrics = recorder_outputs.get("metrics")',
                    "place": "after",
                    "code": f"""
if forward_batch.forward_mode.is_target_verify() and not self.is_draft_worker:
    import os
    if os.path.exists("{POISON}"):
        output.logits_output.next_token_logits[5] = float("nan")
""",
                }
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def server(serve, engine_host) -> Iterator[EngineServer]:
    install(engine_host)
    path = f"{VENV}/lib/python3.11/site-packages/{FILE}"
    clean = inside(engine_host, "cat", path)
    patches = [FAULT, *(definition.load(name).to_json() for name in ("nan-guard", "mem-marks"))]
    venv = str(Path(sys.executable).parents[1])
    (composed,) = compose(venv, [(FILE, clean.encode(), patches)], "0.5.12.post1")
    try:
        inside(engine_host, "sh", "-c", f"cat > {path}", input=composed.content.decode())
        yield serve("demo", env=environment(), **DDTREE)
    finally:
        inside(engine_host, "rm", "-f", POISON)
        inside(engine_host, "sh", "-c", f"cat > {path}", input=clean)


def markers(server: EngineServer, patch: str) -> list[dict[str, Any]]:
    lines = [line for line in server.log().splitlines() if line.startswith("ddtool-diag/1 ")]
    found = [json.loads(line.removeprefix("ddtool-diag/1 ")) for line in lines]
    return [one for one in found if one["patch"] == patch and one["event"] not in NO_FINDING]


def test_a_start_is_marked_and_the_first_bad_verify_is_named(server: EngineServer) -> None:
    """Healthy requests pass in silence; then row 5 turns bad in a verify of the engine, and the service goes on."""
    server.generate(["def main(argv):\n    "], 12)
    assert markers(server, "nan-guard") == []
    marks = markers(server, "mem-marks")
    phases = ("load", "pool", "capture", "first-decode")
    assert sorted((one["worker"], one["phase"]) for one in marks) == sorted(
        (worker, phase) for worker in ("target", "draft") for phase in phases
    )
    assert all(one["rank"] == 0 and one["free"] > 0 and one["allocated"] is None for one in marks)

    inside(server.sandbox, "touch", POISON)
    (bad,) = server.generate(["import os\n"], 12)
    (marker,) = markers(server, "nan-guard")
    width = BUDGET + 1
    place = {"row": 5, "node": 5, "request": 0, "kind": "nan", "rows": width, "width": width, "bad_rows": 1}
    assert {key: marker[key] for key in place} == place
    assert (marker["event"], marker["worker"], marker["rank"]) == ("nonfinite", "target", 0)
    assert marker["rid"] == bad.meta["id"]

    inside(server.sandbox, "rm", POISON)
    (after,) = server.generate(["for name in "], 8)
    assert after.ids and len(markers(server, "nan-guard")) == 1
