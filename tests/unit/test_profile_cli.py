"""The commands of `ddtool profile`: data on stdout, words on stderr, one JSON object with its schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def ddtool(*arguments: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    import os

    environ = {**os.environ, "COLUMNS": str(columns), "KEY": "sentinel-key-1"}
    command = [sys.executable, "-m", "ddtool", "profile", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


def test_list_names_every_profile() -> None:
    done = ddtool("list", "--json")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "ddtool.profile.list/1"
    hosts = {row["name"]: row["host"] for row in answer["profiles"]}
    assert hosts["k26-ddtree"] is None
    assert {"k26-ddtree", "k26-dflash"} <= hosts.keys()


def test_show_json_is_one_object_without_secrets() -> None:
    done = ddtool("show", "k26-ddtree", "--json", "--set", "service.api_key=${env:KEY}")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "ddtool.profile.show/1"
    assert [width["tokens"] for width in answer["widths"]] == [33, 8]
    assert answer["captures"][0]["kept"] == [1, 2, 3, 4]
    assert answer["config"]["api-key"] == answer["profile"]["service"]["api_key"] == "${env:KEY}"
    assert answer["memory"]["outside_needed"] < answer["memory"]["outside"]
    assert "sentinel" not in done.stdout + done.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_show_is_readable_at(columns: int) -> None:
    done = ddtool("show", "k26-ddtree", columns=columns)
    assert done.returncode == 0, done.stderr
    before_files = done.stdout.split("\ncommand  ")[0]
    assert max(len(line) for line in before_files.splitlines()) <= columns
    for part in ("33", "1-4", "rows must divide by 1", "no gathered buffer", "prediction", "ExecStart="):
        assert part in done.stdout
    assert done.stderr == ""


def test_validate_exits_2_on_a_refusal() -> None:
    good = ddtool("validate", "k26-ddtree")
    assert (good.returncode, good.stderr.strip()) == (0, "k26-ddtree can be deployed")
    bad = ddtool("validate", "k26-ddtree", "--json", "--set", "attention_backend=fa3")
    assert bad.returncode == 2
    answer = json.loads(bad.stdout)
    assert answer["schema"] == "ddtool.profile.validate/1"
    assert not answer["ok"]
    assert answer["findings"][0]["level"] == "refuse"


def test_a_wrong_key_exits_2_with_its_place() -> None:
    done = ddtool("show", "k26-ddtree", "--set", "speculative.budgett=3")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "did you mean budget?" in done.stderr


def test_bind_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert ddtool("bind", "k26-ddtree", "gpu1").returncode == 0
    rows = json.loads(ddtool("list", "--json").stdout)["profiles"]
    assert {row["name"]: row["host"] for row in rows}["k26-ddtree"] == "gpu1"
