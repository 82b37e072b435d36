"""`ddtool crash classify` as a user runs it: any input, no host, exit 0 for any verdict."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import DDTOOL, data, ddtool, ok

SIZES = (
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0"
)
LOG = f"""\
May 21 10:11:12 gpu systemd[1]: Started sglang.service - SGLang.
May 21 10:11:13 gpu sglang[48]: [2026-05-21 10:11:13 TP0] Init torch distributed begin.
May 21 10:12:30 gpu sglang[48]: [2026-05-21 10:12:30] The server is fired up and ready to roll!
May 21 10:12:31 gpu sglang[48]: [2026-05-21 10:12:31 TP3] Scheduler hit an exception: Traceback (most recent call last):
May 21 10:12:31 gpu sglang[48]:   File "/v/sglang/srt/model_executor/cuda_graph_runner.py", line 873, in replay
May 21 10:12:31 gpu sglang[48]:     self.replay_prepare(forward_batch, pp_proxy_tensors)
May 21 10:12:31 gpu sglang[48]: {SIZES}
May 21 10:12:33 gpu systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL
May 21 10:12:33 gpu systemd[1]: sglang.service: Failed with result 'signal'.
"""
NOWHERE = {"DDTOOL_HOST": "nowhere.invalid"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "service.log"
    path.write_text(LOG)
    return path


def test_a_file_gets_a_page(log: Path) -> None:
    shown = ok("crash", "classify", str(log), env=NOWHERE)
    assert shown.startswith("graph_shape_mismatch")
    assert "first cause  line 7, rank 3" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_json_is_the_shared_format(log: Path) -> None:
    verdict = data("crash", "classify", str(log), env=NOWHERE)
    assert verdict["schema"] == "ddtool.crash.classify/1"
    assert {
        *("category", "subcode", "cause", "first_cause", "cascade", "evidence", "missing"),
        *("remedy", "next_command", "confidence", "fingerprint", "ranks"),
    } < set(verdict)
    assert verdict["first_cause"]["line"] == 7 and verdict["first_cause"]["rank"] == 3
    assert verdict["first_cause"]["text"] == SIZES


@pytest.mark.parametrize("argument", [(), ("-",)])
def test_standard_input_is_read(argument: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*DDTOOL, "crash", "classify", *argument, "--json"], input=LOG.encode(), capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["category"] == "graph_shape_mismatch"


def test_packed_is_the_same(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "service.log.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    assert data("crash", "classify", str(packed)) == data("crash", "classify", str(log))


def test_a_profile_explains_the_numbers(log: Path) -> None:
    verdict = data("crash", "classify", str(log), "-p", "k26-ddtree", env=NOWHERE)
    assert "33 is" in verdict["cause"] and "8 is" in verdict["cause"]


@pytest.mark.parametrize("content", [b"", b"hello\n", bytes(range(256)) * 40, LOG.splitlines()[2].encode()])
def test_what_decides_nothing_is_no_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert data("crash", "classify", str(path))["category"] in ("no_crash", "unknown")


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    done = ddtool("crash", "classify", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "nowhere" in done.stderr and "next:" in done.stderr


def test_without_a_profile_nothing_heavy_is_loaded(log: Path) -> None:
    """A pasted log is answered at once."""
    code = (
        "import sys\nfrom ddtool.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('paramiko', 'rich.console', 'httpx', 'ddtool.profile', 'ddtool.deploy',"
        " 'ddtool.transport') if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "crash", "classify", str(log)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr.strip() == "[]" and "first cause" in done.stdout
