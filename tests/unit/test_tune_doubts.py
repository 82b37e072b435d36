"""What `tune --from` says of runs that are less than they look: cut files, unquiet machines, failed predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import tuned_run
from support.cli import here
from support.tuned_run import free

Json = dict[str, Any]
ARMS = ["chain", "tree:23", "tree:32", "tree:45"]


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., Path]:
    def made(*words: Any, root: str = "runs", **more: Any) -> Path:
        return tuned_run.tuned(tmp_path / root, *words, **more)

    return made


def told(path: Path, *words: str) -> Json:
    done = here("tune", "--from", str(path), *words, "--json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def rewritten(path: Path, change: Any) -> None:
    """Every line of a run's samples as `change` leaves it."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class TestRecommendation:
    def check(self, path: Path) -> Json:
        (found,) = (one for one in told(path)["checks"] if one["name"] == "recommendation")
        return found

    def test_the_worst_load_is_judged_and_what_the_prediction_alone_would_have_cost(
        self, tuned: Callable[..., Path]
    ) -> None:
        def kneed(width: int, active: int) -> float:
            """What the fit did not see: several wide trees together are dear."""
            return free(width, active) * (1.5 if width > 28 and active > 1 else 1)

        guess = told(tuned(free, loads=(1, 4), root="fit alone"))["by_load"][1]["best_tree"]
        found = self.check(tuned(free, [*ARMS, guess], loads=(1, 4), again=kneed))
        assert found["ok"]
        final, _, alone = found["detail"].partition("; by prediction alone ")
        assert final.endswith(" is 0.0% below the best arm verified (good up to 3%)")
        arm, _, lost = alone.rpartition(", ")
        assert arm == f"{guess} at concurrency 4"
        assert 15 < float(lost.removesuffix("% below")) < 40

    def test_a_later_load_can_fail_it(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS, loads=(1, 4))

        def now_and_then_slow(line: Json) -> None:
            if line["kind"] == "end" and line["pass"] in {f"tree:32/code-c4/v0/r{n}" for n in (0, 1)}:
                line["seconds"] *= 9

        def slow(line: Json) -> None:
            if line["kind"] == "end" and line["pass"].startswith(("tree:23/code-c4", "tree:45/code-c4")):
                line["seconds"] *= 2

        rewritten(path.parent / tuned_run.VERIFIED / "samples.jsonl", now_and_then_slow)
        rewritten(path.parent / tuned_run.VERIFIED / "samples.jsonl", slow)
        found = self.check(path)
        assert not found["ok"], found
        assert found["detail"].startswith("chain at concurrency 4 is ")
