"""The shipped flag data and the config file, against SGLang's own wheels."""

from __future__ import annotations

import argparse
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddtool.profile import load, release_flags
from ddtool.profile.launch import config_file, config_text

pytestmark = pytest.mark.patches


Wheel = Callable[[str], Path]


def merger_of(wheel: Path) -> Any:
    """SGLang's own config file reader, run from the wheel's source; it needs nothing else of SGLang."""
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("sglang/srt/server_args_config_parser.py")
    module = types.ModuleType("server_args_config_parser")
    exec(compile(source, module.__name__, "exec"), vars(module))
    return module.ConfigArgumentMerger


@pytest.mark.parametrize("release", release_flags.known_releases())
def test_shipped_flags_are_the_wheels(release: str, wheel: Wheel) -> None:
    derived = release_flags.from_wheel(wheel(release))
    assert derived == release_flags.load(release)
    assert "num-continuous-decode-steps" in derived.unread
    assert "attention-backend" not in derived.unread


@pytest.mark.parametrize("release", release_flags.known_releases())
def test_sglang_reads_our_config_file_as_meant(release: str, tmp_path: Path, wheel: Wheel) -> None:
    known = release_flags.load(release)
    assert known is not None
    parser = argparse.ArgumentParser()
    for flag, action in known.flags.items():
        if action in ("store", "store_true"):
            parser.add_argument(
                f"--{flag}", action=action, **({"nargs": "+"} if flag == "cuda-graph-bs" else {})
            )
    profile = load(
        "k26-dflash",
        [
            "graphs.max_bs=null",
            "graphs.bs=[1, 2]",
            "server_args.json-model-override-args={a: 1}",
            "service.api_key=${env:KEY}",
        ],
    )
    secrets = {"KEY": "12345678"}  # YAML must not make a number of it
    path = tmp_path / "config.yaml"
    path.write_text(config_text(profile, secrets))
    read = vars(
        parser.parse_args(merger_of(wheel(release))(parser).merge_config_with_args(["--config", str(path)]))
    )
    for flag, value in config_file(profile, secrets).items():
        expected = [str(item) for item in value] if isinstance(value, list) else value
        got = read[flag.replace("-", "_")]
        assert got == (expected if isinstance(expected, bool | list) else str(expected)), flag


def test_config_text_is_yaml_of_the_config_file() -> None:
    profile = load("k26-ddtree")
    assert yaml.safe_load(config_text(profile, {})) == config_file(profile, {})
