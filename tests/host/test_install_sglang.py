"""Real SGLang from a wheelhouse on a bare host without a network: 0.6 GB of wheels, 2.4 GB installed, DDTREE generates.

Needs what `ddtool sandbox up` needs: a pip that finds a CPU build of torch. Several minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.cli import data, ddtool, ok
from support.remote import output

from ddtool import data as shipped
from ddtool.sandbox import Sandbox, down, image

pytestmark = [pytest.mark.host, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600)]

BASE = "/opt/managed/venv"
PATIENT = 1800.0


@pytest.fixture(scope="module")
def bare(boot: object) -> Iterator[Sandbox]:
    """Models and CPU stand-ins, and no SGLang."""
    data_layer = image.engine_layers(print)[0]
    host = boot("install-sglang", layers=[data_layer], disk="9g", memory="14g")  # type: ignore[operator]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        yield host
    down(host.name)


def test_real_sglang_is_sent_installed_and_generates(bare: Sandbox, tmp_path: Path) -> None:
    given = yaml.safe_load((shipped.data_folder("profiles") / "demo.yaml").read_text())
    house = {"install": "managed", "wheelhouse": str(tmp_path / "house"), "python": "/usr/bin/python3.11"}
    given["engine"] = {**given["engine"], **house, "venv": BASE}
    given["env"]["PYTHONPATH"] = image.STANDINS
    profile = tmp_path / "demo-managed.yaml"
    profile.write_text(yaml.safe_dump(given))
    pins = Path(image.__file__).with_name("pins-cpu.txt")
    begun = time.monotonic()
    ok("wheelhouse", "build", str(profile), "-r", str(pins), "--no-deps", timeout=PATIENT)
    built = time.monotonic()
    done = ddtool("deploy", str(profile), "--yes", timeout=PATIENT)
    assert done.returncode == 0, done.stderr
    print(f"collected in {built - begun:.0f} s, deployed in {time.monotonic() - built:.0f} s")
    print(done.stderr)
    answer = data(
        "generate", "-p", str(profile), "for name in os.listdir(", "--max-tokens", "8", timeout=PATIENT
    )
    assert answer["text"] and answer["accept_length"] > 1
    again = data("deploy", str(profile), "--yes", timeout=PATIENT)
    assert again["changed"] is False and again["round_trips"] <= 3
    assert (
        output(bare, f"ls {BASE}/bin/python") and "wheels" not in output(bare, "ls /var/lib/ddtool").split()
    )
