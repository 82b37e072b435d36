"""`diag show --diff` asks the host for its clean bytes, and changes nothing there."""

from __future__ import annotations

import subprocess

import pytest
from support import mini, minidiag
from support.remote import output
from support.tree import differences, snapshot

from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host
FILE = "sglang/srt/model_executor/cuda_graph_runner.py"


def test_the_diff_of_a_host_applies_to_its_files(host: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    mini.install(host)
    monkeypatch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
    monkeypatch.setenv("DDTOOL_PROFILE", str(mini.PROFILE))
    site = output(host, f"echo {mini.VENV}/lib/python3.*/site-packages")
    before = snapshot(host)
    command = [*minidiag.COMMAND, "diag", "show", minidiag.NAME, "--diff"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"--- a/{FILE}\n+++ b/{FILE}\n") and "against wheel:sglang-" in done.stderr
    assert f"{site}/{FILE}" not in differences(before, snapshot(host))
    unknown = subprocess.run([*command, "--against", "forc"], capture_output=True, text=True, timeout=110)
    assert unknown.returncode == 2 and "there is no baseline 'forc'" in unknown.stderr
