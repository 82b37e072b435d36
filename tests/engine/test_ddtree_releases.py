"""The second release whose worker we adapt to says what plain decoding says, and either tells whose class answers."""

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
