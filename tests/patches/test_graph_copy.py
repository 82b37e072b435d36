"""graph-copy in the real module on CPU: both crashes reproduce, and are then named by field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import venvs

from ddtool.agent.compose import compose
from ddtool.diagnostics import definition

from .conftest import RELEASES

pytestmark = [pytest.mark.patches, pytest.mark.timeout(300)]
FILE = "sglang/srt/model_executor/cuda_graph_runner.py"
PATCH = definition.load("graph-copy")
Answer = dict[str, Any]


@pytest.fixture(scope="module", params=RELEASES)
def answer(
    request: pytest.FixtureRequest,
    unpacked: Callable[[str], Path],
    engine_path: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Answer:
    """One import of SGLang per release; every case runs in it, on the wheel's module and on the patched one."""
    venv = unpacked(request.param)
    content = (venvs.site(venv) / FILE).read_bytes()
    (composed,) = compose(str(venv), [(FILE, content, [PATCH.to_json()])])
    folder = tmp_path_factory.mktemp("probe")
    (folder / "patched.py").write_bytes(composed.content)
    environment = {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([str(venvs.site(venv)), *engine_path]),
        "DDTOOL_UNIT": "sglang-test",
        "DDTOOL_RUN": str(folder / "run"),
    }
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "graph_copy_probe.py")]
    run = subprocess.run(
        [*command, str(folder / "patched.py")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    result: Answer = json.loads(run.stdout.split("RESULT ")[1])
    result["proofs"] = [json.loads(path.read_text()) for path in (folder / "run/sglang-test").iterdir()]
    return result


def markers(said: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("ddtool-diag/1 ")) for line in said.splitlines()]


def test_healthy_input_is_copied_the_same_and_in_silence(answer: Answer) -> None:
    stock, patched = answer["wheel"]["healthy"], answer["patched"]["healthy"]
    assert patched == stock
    assert patched["error"] is None and patched["said"] == ""
    assert patched["result"]["positions"][:8] == list(range(40, 48))


def test_none_is_named(answer: Answer) -> None:
    assert answer["wheel"]["positions"]["error"] == [
        "AttributeError",
        "'NoneType' object has no attribute 'dtype'",
    ]
    kind, text = answer["patched"]["positions"]["error"]
    assert kind == "RuntimeError"
    assert all(part in text for part in ("positions", "None", "draft worker", "rank 3", "index 4 of 7"))
    (marker,) = markers(answer["patched"]["positions"]["said"])
    pid = marker.pop("pid")
    assert pid in [proof["pid"] for proof in answer["proofs"]]
    assert marker == {
        "patch": "graph-copy",
        "sha": PATCH.sha,
        "event": "none",
        "worker": "draft",
        "rank": 3,
        "index": 4,
        "field": "positions",
        "side": "src",
        "group_size": 7,
        "width": 8,
    }


def test_a_field_behind_optional_ones_is_named_by_its_buffer(answer: Answer) -> None:
    """Its index depends on the configuration (here mrope precedes it), so no table could name it."""
    (marker,) = markers(answer["patched"]["padded_count"]["said"])
    assert (marker["field"], marker["index"]) == ("num_token_non_padded", 6)


def test_every_none_is_reported(answer: Answer) -> None:
    found = [(marker["field"], marker["index"]) for marker in markers(answer["patched"]["two"]["said"])]
    assert found == [("input_ids", 0), ("out_cache_loc", 3)]


def test_eight_against_thirty_three_is_named(answer: Answer) -> None:
    stock = "The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0"
    assert answer["wheel"]["width"]["error"] == ["RuntimeError", stock]
    found = markers(answer["patched"]["width"]["said"])
    assert [marker["field"] for marker in found] == ["input_ids", "out_cache_loc", "positions"]
    assert {(marker["event"], marker["worker"], marker["width"]) for marker in found} == {
        ("shape", "draft", 8)
    }
    assert all((marker["dst_shape"], marker["src_shape"]) == ([8], [33]) for marker in found)
    assert "positions (index 4): [33] into [8]" in answer["patched"]["width"]["error"][1]


def test_the_target_worker_is_told_from_the_draft(answer: Answer) -> None:
    (marker,) = markers(answer["target"]["said"])
    assert marker["worker"] == "target" and "target worker" in answer["target"]["error"][1]


def test_import_leaves_a_proof_and_says_so(answer: Answer) -> None:
    (marker,) = markers(answer["at_import"])
    assert (marker["event"], marker["patch"], marker["sha"], marker["file"]) == (
        "loaded",
        "graph-copy",
        PATCH.sha,
        FILE,
    )
    (proof,) = answer["proofs"]
    assert proof["patches"] == [{"name": "graph-copy", "sha": PATCH.sha, "file": FILE}]
    assert proof["pid"] == marker["pid"] and proof["start"] > 0


def test_the_check_is_cheap(answer: Answer) -> None:
    """Against a replay of milliseconds. The bound is 100 times what was measured, so only a blunder fails it."""
    assert answer["cost_us"] < 500
