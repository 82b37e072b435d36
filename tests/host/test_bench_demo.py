"""`bench demo`: plain decoding, the chain and a tree of real SGLang on the CPU, in one run. Its speed means nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cli import data
from support.remote import output

from ddtool.sandbox import Sandbox, down
from ddtool.sandbox.image import engine_layers

pytestmark = [pytest.mark.host, pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]

PATIENT = 1400.0


@pytest.fixture(scope="module")
def demo(boot: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    host = boot("demo-bench", layers=engine_layers(print))  # type: ignore[operator]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield host
    down(host.name)


def test_three_arms_on_a_host_where_nothing_is_deployed(demo: Sandbox) -> None:
    words = ["--tokens", "6", "--prompts", "2", "--repeats", "1", "--visits", "1", "--concurrency", "2"]
    words += ["--set", "service.deadlines.request_s=600"]  # a busy machine takes a minute for a token
    result = data("bench", "demo", *words, "--yes", timeout=PATIENT)
    (cell,) = result["cells"]
    assert list(cell["arms"]) == ["plain", "chain", "tree:31"]
    for numbers in cell["arms"].values():
        assert (numbers["passes"], numbers["requests"], numbers["errors"]) == (1, 2, 0)
    assert cell["arms"]["plain"]["accept"] is None
    assert all(cell["arms"][arm]["accept"]["mean"] >= 1 for arm in ("chain", "tree:31"))
    said = " ".join(result["taints"])
    assert "speed means nothing" in said and "without CUDA graphs" in said
    assert result["fingerprint"]["engine"] and result["fingerprint"]["wheels"]["sglang"]
    assert output(demo, "ls /etc/systemd/system | grep -c sglang-demo || true") == "0"
    (listed,) = data("bench", "list")["runs"]
    assert (listed["run"], listed["host"], listed["done"]) == (result["run"], "sandbox:demo-bench", 3)
