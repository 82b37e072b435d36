"""Building the sandbox's SGLang: what is downloaded, what a refusal says, and what a killed builder leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddtool.errors import DdtoolError, PreflightError
from ddtool.sandbox import image, wheels


@pytest.fixture
def pip_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_cpu_build_of_torch_the_setting_is_named(pip_finds_nothing, tmp_path):
    pins = wheels.read_pins(Path(image.__file__).with_name("pins-cpu.txt"))
    with pytest.raises(PreflightError, match=r"torch==2\.13\.0\+cpu") as raised:
        wheels.download(pins, tmp_path)
    assert raised.value.exit_code == 4
    assert "PIP_EXTRA_INDEX_URL" in str(raised.value.hint)
    assert not list(tmp_path.iterdir()), "something was downloaded before the refusal"


def test_another_missing_package_is_no_question_of_torch(pip_finds_nothing, tmp_path):
    with pytest.raises(DdtoolError) as raised:
        wheels.download(["torch-audiotrack==1.0"], tmp_path)
    assert not isinstance(raised.value, PreflightError)
    assert "torch-audiotrack==1.0" in str(raised.value.why)


def test_every_pin_is_exact_and_torch_can_only_be_a_cpu_build():
    pins = wheels.read_pins(Path(image.__file__).with_name("pins-cpu.txt"))
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", pin) for pin in pins)
    assert [pin for pin in pins if pin.startswith("torch==")] == ["torch==2.13.0+cpu"]
    assert "sglang==0.5.12.post1" in pins


def test_the_data_layer_is_whole_and_built_once(tmp_path, monkeypatch):
    monkeypatch.setenv("DDTOOL_CACHE", str(tmp_path))
    abandoned = tmp_path / "build-engine-data-x1"
    (abandoned / "layer").mkdir(parents=True)
    layer = image._data_layer()
    assert not abandoned.exists(), "a killed builder's folder stays for ever"
    assert (layer / "opt/sglang/models/code-1m/draft/model.safetensors").stat().st_size > 1_000_000
    standins = layer / image.STANDINS.lstrip("/")
    assert json.loads((standins / "STANDINS.json").read_text())["folder"] == image.STANDINS
    assert list((standins).glob("*.dist-info/entry_points.txt"))
    before = layer.stat().st_mtime_ns
    assert image._data_layer() == layer
    assert layer.stat().st_mtime_ns == before


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DDTOOL_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError), image._cached("engine-venv", "0") as (target, layer):
        (layer / "half").write_text("")
        raise RuntimeError
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["engine-venv.lock"]
