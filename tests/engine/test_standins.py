"""The CPU stand-ins: importable, listed, outside the wheel, and never silent."""

from __future__ import annotations

import json

import pytest

from ddtool.sandbox import exec_inside
from ddtool.sandbox.image import STANDINS, VENV

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def python(host, code: str):
    return exec_inside(host, [f"{VENV}/bin/python", "-c", code], timeout=120)


@pytest.mark.parametrize(
    ("code", "called"),
    [
        ("import sgl_kernel; sgl_kernel.verify_tree_greedy(1)", "sgl_kernel.verify_tree_greedy"),
        (
            "from sgl_kernel.flash_mla import get_mla_metadata as f; f()",
            "sgl_kernel.flash_mla.get_mla_metadata",
        ),
        ("from torchvision.io import decode_jpeg as f; f(b'')", "torchvision.io.decode_jpeg"),
        ("import sgl_kernel\nif sgl_kernel.has_feature: pass", "sgl_kernel.has_feature"),
    ],
)
def test_using_a_stand_in_raises_and_names_it(engine_host, code, called):
    result = python(engine_host, code)
    assert result.returncode == 1
    assert f"StandInCalled: {called} was called" in result.stderr


def test_every_stand_in_is_listed(engine_host):
    listed = json.loads(exec_inside(engine_host, ["cat", f"{STANDINS}/STANDINS.json"]).stdout)
    names = {entry["name"] for entry in listed["standins"]}
    hooks = python(engine_host, "from cpu_standins import plugin as p; print(p.DRAFTER_FORWARD, p.TP_GATHER)")
    packages = python(
        engine_host,
        f"import os; print(*[n for n in os.listdir('{STANDINS}')"
        f" if os.path.isfile('{STANDINS}/' + n + '/__init__.py') and n != 'cpu_standins'])",
    )
    assert names == {*hooks.stdout.split(), *packages.stdout.split()}


def test_the_sglang_wheel_is_as_released(engine_host):
    code = """
import base64, hashlib, importlib.metadata as metadata
files = [f for f in metadata.files("sglang") if f.hash]
wrong = [str(f) for f in files if f.hash.value !=
         base64.urlsafe_b64encode(hashlib.sha256(f.locate().read_bytes()).digest()).rstrip(b"=").decode()]
print(metadata.version("sglang"), len(files) > 1000, wrong)
"""
    assert python(engine_host, code).stdout.strip() == "0.5.12.post1 True []"
