"""The second release whose worker we adapt to, and two ranks: both say what plain decoding says."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.ddtree import DDTREE, ENGINE, PLAIN, TRACE, environment, inside, install

from ddtool.engine import engine_id
from ddtool.sandbox.image import VENV
from ddtool.sandbox.records import cache_root

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

NEXT_RELEASE = "0.5.13.post1"
PYTHON = f"{VENV}/bin/python"
FOLDER = "/opt/under-test/sglang"
PROMPTS = ["for name in os.listdir(", "class Reader:\n    def __init__(self"]


@pytest.fixture(scope="module")
def expected(serve) -> list[list[int]]:
    """Plain decoding of the reference release; the next one says the same."""
    plain = serve("demo", **PLAIN)
    ids = [completion.ids for completion in plain.generate(PROMPTS, 24)]
    plain.stop()
    return ids


@pytest.fixture
def next_release(engine_host) -> str:
    """A folder in the sandbox with the next release's package, to go before the venv's; its needs are the same here."""
    folder = cache_root() / "wheels"
    name = f"sglang-{NEXT_RELEASE}-*.whl"
    if not list(folder.glob(name)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.11", "--dest", str(folder), f"sglang=={NEXT_RELEASE}"]
        subprocess.run(command, check=True)
    (wheel,) = folder.glob(name)
    _unpack(engine_host, wheel)
    return FOLDER


def _unpack(sandbox, wheel: Path) -> None:
    code = (
        "import base64, io, sys, zipfile\n"
        f"zipfile.ZipFile(io.BytesIO(base64.b64decode(sys.stdin.read()))).extractall({FOLDER!r})"
    )
    inside(sandbox, "python3", "-c", code, input=base64.b64encode(wheel.read_bytes()).decode())


def test_the_next_release(serve, engine_host, expected, next_release):
    install(engine_host)
    trace = f"verify-trace:{TRACE},kv-ledger"
    server = serve("demo", **DDTREE, env=environment(trace=trace, first=[next_release]))
    assert [completion.ids for completion in server.generate(PROMPTS, 24)] == expected
    assert f"on SGLang {NEXT_RELEASE}" in server.log()
    status, answer = server.post("/generate", {"text": PROMPTS[0], "return_logprob": True})
    assert (status, "DDTREE does not support" in str(answer)) == (400, True)
    server.stop()


@pytest.mark.slow
def test_two_ranks(serve, engine_host, expected):
    """Greedy equals plain decoding; sampled, the ranks stay together, which rank-sync proves round by round."""
    install(engine_host)
    env = {**environment(trace="rank-sync,kv-ledger"), "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    server = serve("demo", **DDTREE, tp_size=2, env=env)
    assert [completion.ids[:12] for completion in server.generate(PROMPTS, 12)] == [
        ids[:12] for ids in expected
    ]
    sampled = server.generate(PROMPTS, 8, temperature=1.0, top_p=0.95)
    assert all(len(completion.ids) == 8 for completion in sampled)
    assert "rank-sync" not in server.log()


@pytest.mark.slow
def test_a_tree_takes_more_than_the_chain(serve, engine_host):
    """The same drafter, the same prompts, a server each: DFLASH's accept length against DDTREE's."""
    install(engine_host)
    chain, tree = serve("demo"), serve("demo", **DDTREE, env=environment())
    lengths = []
    for server in (chain, tree):
        found = server.generate(PROMPTS, 64)
        rounds = sum(completion.meta["spec_verify_ct"] for completion in found)
        lengths.append(sum(completion.meta["completion_tokens"] for completion in found) / rounds)
        server.stop()
    assert lengths[1] > 1.1 * lengths[0]


def test_doctor_can_ask_who_answers(engine_host):
    install(engine_host)
    command = ["env", f"PYTHONPATH={ENGINE}", "SGLANG_USE_CPU_ENGINE=1", "TRITON_INTERPRET=1"]
    answer = json.loads(inside(engine_host, *command, PYTHON, "-m", "ddtool_engine.check").splitlines()[-1])
    assert answer == {
        "engine": engine_id(),
        "sglang": "0.5.12.post1",
        "provider": "ddtool_engine.v1.algorithm",
        "error": None,
    }
