"""docs/by-hand.md, run as it is written: a host is clean again though ddtool is not asked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import mini, minidiag
from support.cli import ok
from support.remote import output
from support.tree import differences, snapshot, without_times

from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host
PAGE = Path(__file__).parents[2] / "docs" / "by-hand.md"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def test_the_page_leaves_the_host_as_it_was(host: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    mini.install(host)
    site = output(host, f"echo {mini.VENV}/lib/python3.*/site-packages")
    before = snapshot(host)
    monkeypatch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
    monkeypatch.setenv("DDTOOL_PROFILE", str(mini.PROFILE))
    ok("deploy", str(mini.PROFILE), "--yes")
    enable = [*minidiag.COMMAND, "diag", "enable", minidiag.NAME, "--yes"]
    assert subprocess.run(enable, stdin=subprocess.DEVNULL, timeout=110).returncode == 0
    patched = f"{site}/sglang/srt/model_executor/cuda_graph_runner.py"
    assert patched in differences(before, snapshot(host))
    # As a change that was killed between its renames leaves it: systemd starts nothing, a copy lies beside the file.
    output(host, f"cp {patched} $(dirname {patched})/.ddtool-x-0.old; touch /var/lib/ddtool/txn.open")
    settings, *steps = blocks()
    settings = re.sub(r"(?m)^UNIT=.*", "UNIT=sglang-mini", settings)
    settings = re.sub(r"(?m)^SITE=.*", f"SITE={site}", settings)
    said = [output(host, "bash -euo pipefail -s", input=settings + step) for step in steps]
    assert [text for text in said if "differ" in text] == ["0 files differ"]
    left = differences(without_times(before), without_times(snapshot(host)))
    assert [path for path in left if "__pycache__" not in path] == []
    assert output(host, "systemctl list-units --all --plain --no-legend 'sglang-mini*' 'ddtool-*'") == ""
