"""A sample of the fault matrix, and its page. `-m slow` runs all of it, which takes hours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import doctored
from support.matrix import table
from support.matrix.cells import Ready, run_cell
from support.matrix.injections import INJECTIONS
from support.matrix.stages import SMALL_DISK, Stage, deployed
from support.matrix.verbs import VERBS

from ddtool.sandbox import Sandbox, down

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
SAMPLE = ("executor killed", "read-only", "systemd restarts the unit")


@pytest.fixture(scope="module")
def stage(boot: Callable[..., Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    host = boot("fault-matrix", disk=SMALL_DISK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        yield deployed(host, tmp_path_factory.mktemp("stage"))
    down(host.name)


@pytest.mark.host
def test_a_sample(stage: Stage) -> None:
    ready = Ready.make("deploy new release", stage, seed=2)
    cells = [run_cell(ready, INJECTIONS[name], number) for number, name in enumerate(SAMPLE)]
    assert [cell["outcome"] for cell in cells if "LOSS" in cell["outcome"]] == []
    points = [point for cell in cells for point in cell["points"]]
    assert len(points) == 4 and any(point["stepped"] for point in points), points


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_all_of_it(boot: Callable[..., Sandbox], tmp_path: Path) -> None:
    script = Path(__file__).with_name("fault_matrix.py")
    done = subprocess.run([sys.executable, str(script), "--out", str(tmp_path)], check=False)
    assert done.returncode == 0, table.losses(tmp_path)
    assert len(table.cells(tmp_path)) == len(VERBS) * len(INJECTIONS)


def test_the_page_shows_the_results_that_are_there() -> None:
    results = ROOT / "docs" / "results" / "2026-11-30-fault-matrix"
    cells = table.cells(results)
    assert {(cell["verb"], cell["fault"]) for cell in cells} == {(v, f) for v in VERBS for f in INJECTIONS}
    assert table.losses(results) == []
    assert table.page(cells) in (ROOT / "docs" / "faults.md").read_text()
