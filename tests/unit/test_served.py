"""Where a process that ddtool did not start answers, read from its own arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import adopt, releases, served
from ddtool.agent.errors import AgentError
from ddtool.agent.registry import Context

KEY = "sk-by-hand-0123456789"


@pytest.mark.parametrize(
    ("flags", "config", "address", "port", "key"),
    [
        ("", None, "127.0.0.1", 30000, None),
        ("--port 31000 --host 10.0.0.7", None, "10.0.0.7", 31000, None),
        (f"--port=31000 --host=0.0.0.0 --api-key={KEY}", None, "127.0.0.1", 31000, KEY),
        (f"--host :: --api-key {KEY} --port", None, "::1", 30000, KEY),
        ("--port 1 --port 2", None, "127.0.0.1", 2, None),  # argparse: the last one counts
        ("--config k26.yaml", f'port: 31000\napi-key: "{KEY}"\n', "127.0.0.1", 31000, KEY),
        ("--config=k26.yaml --port 5", f"api_key: {KEY}\nport: 31000\n", "127.0.0.1", 5, KEY),
        ("--config k26.yaml", f"port: 31000  # as ever\napi-key: '{KEY}' # ours\n", "127.0.0.1", 31000, KEY),
        ("--config k26.yaml", "host: # anywhere\nport:\n  31000\n", "127.0.0.1", 30000, None),
        ("--config gone.yaml", None, "127.0.0.1", 30000, None),
    ],
)
def test_arguments(
    tmp_path: Path, flags: str, config: str | None, address: str, port: int, key: str | None
) -> None:
    if config:
        (tmp_path / "k26.yaml").write_text(config)
    argv = ["python", "-m", "sglang.launch_server", *flags.split()]
    at = served.of_arguments(argv, str(tmp_path), "sglang-k26")
    assert (at["address"], at["port"]) == (address, port)
    assert at["api_key"] == (key and (key, "sglang-k26"))  # for that unit's processes only


def test_a_process_by_hand_goes_before_the_release_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a takeover the release is current, and the process of before, with another key, is what runs."""
    ctx = Context(tmp_path / "state", tmp_path / "run")
    of_release: dict[str, Any] = {"address": "127.0.0.1", "port": 1, "api_key": None}
    monkeypatch.setattr(served.releases, "current_gate", lambda *_: of_release)
    stand_in = "import time; print(flush=True); time.sleep(60)"
    # Its command line reads as a server's: an interpreter, and the module in one of the first words.
    argv = [sys.executable, "-c", stand_in + " # sglang.launch_server", "--port", "31000", "--api-key", KEY]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout and process.stdout.readline()
        state = {"main_pid": process.pid, "processes": [{"pid": process.pid, "start": 1}]}
        assert served.where(ctx, "u", state) == {
            "address": "127.0.0.1",
            "port": 31000,
            "api_key": (KEY, "u"),
        }
        assert served.where(ctx, "u", {"main_pid": 0, "processes": []}) == of_release
        monkeypatch.setattr(served.releases, "started_from", lambda *_: "0001-abc")
        assert served.where(ctx, "u", state) == of_release
        process.kill()


def test_a_process_that_went_away_is_none(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert served.server_process({"processes": [{"pid": gone.pid, "start": 1}]}) is None
    assert served.server_process({"processes": [{"pid": os.getpid(), "start": 1}]}) is None
    ctx = Context(tmp_path / "state", tmp_path / "run")
    assert served.where(ctx, "u", {"systemd": False}) is None


@pytest.mark.parametrize("file", ["service.json", "adopted.json"])
def test_state_of_a_later_ddtool_is_not_guessed_at(tmp_path: Path, file: str) -> None:
    ctx = Context(tmp_path / "state", tmp_path / "run")
    folder = releases.service_folder(ctx, "u")
    folder.mkdir(parents=True)
    (folder / file).write_text('{"schema": "ddtool.service/9", "current": "0001-a"}')
    with pytest.raises(AgentError, match=rf"{file} is ddtool\.service/9") as caught:
        (releases.service if file == "service.json" else adopt.adopted)(ctx, "u")
    assert caught.value.hint == "use the ddtool that wrote it"
