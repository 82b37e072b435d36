"""What of tune.py needs no GPU: what it begins and goes on with, the halves, the best of what was tried, the words."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cells
import pytest
import server
import tune
from support.sse_server import SseServer
from support.tuning import BLOCK, TOPK, Machine, texts

from ddtool.bench.tune import plan
from ddtool.bench.tune.answer import answer
from ddtool.bench.tune.found import Found, choice
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import timings

ARMS = plan.arms(plan.widths(None, BLOCK))


@pytest.fixture(scope="module")
def found() -> Found:
    def dense(width: int, active: int) -> float:
        return 9 + 0.1 * active + 0.02 * max(0, width * active - 300)

    machine = Machine(texts(31, 16, 48, 0.62), dense, tree_ms=0.3)
    fitted = timings(machine.passes(ARMS, [1, 16], 2), TOPK)
    verified = timings(
        machine.passes(["chain", "tree:23", "tree:32", "tree:45", "tree:64"], [1, 16], 6), TOPK
    )
    return Found(Predictor(fitted, machine.acceptance), fitted, verified, "code", TOPK)


def test_half_of_the_widths_both_ends_among_them_tell_the_others(found: Found) -> None:
    rows = tune.half(found)
    judged = {row["arm"] for row in rows if not row["fitted"]}
    assert judged == {"tree:11", "tree:19", "tree:32", "tree:47"}
    assert len(rows) == 2 * len(ARMS)
    for row in rows:
        assert row["predicted"] == pytest.approx(row["measured"], rel=0.10)


def test_what_is_recommended_is_held_against_the_best_that_was_tried(found: Found) -> None:
    for row in tune.best_tried(found):
        assert row["below"] <= 0.03
    told = answer(found, {}, choice(found, found.main[0]), found.main[0], "")
    lines = list(tune.report(told, tune.half(found), tune.best_tried(found)))
    assert sum("JUDGED" in line for line in lines) == 8
    assert any("the best tried" in line for line in lines)


def test_experts_are_taken_as_count_and_choice() -> None:
    words = ["--name", "x", "--target", "/t", "--draft", "/d", "--commit", "abc", "--experts", "384:8"]
    assert tune.parser().parse_args(words).experts == "384:8"
    assert tune.parser().parse_args(words).minutes < 10


ON_PATH = """#!/bin/sh
case "$*" in
*--loop-ms=*) while :; do echo 'GPU-a, 1000, 200.0'; echo >> FOLDER/beats; sleep 0.01; done;;
*compute-apps*) : > FOLDER/beats
  while [ $(wc -l < FOLDER/beats) -lt 3 ]; do sleep 0.01; done
  echo 'GPU-a, PID, python'; echo 'GPU-a, 77, game';;
*) exit 1;;
esac
"""


class TestRig:
    @pytest.fixture(autouse=True)
    def without_a_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cells, "card", lambda: "A")

    def rig(self, folder: Path, *words: str, commit: str = "abc") -> tune.Rig:
        given = ["--name", "x", "--target", "/t", "--draft", "/d", "--commit", commit, "--cells", str(folder)]
        options = tune.parser().parse_args([*given, *words])
        return tune.Rig(options, cells.open_cells(options, options.name))

    def fit(self, rig: tune.Rig, arms: Sequence[str] = ("chain", "tree:7")) -> tune.Folder:
        return rig.folder("fit", lambda: arms, 2)

    def test_a_run_goes_on_with_another_commit(self, tmp_path: Path) -> None:
        first = self.fit(self.rig(tmp_path))
        again = self.fit(self.rig(tmp_path, commit="def"))
        assert again.path == first.path and again.run["fingerprint"]["commit"] == "abc"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--tokens", "2048"], r"flags.max-total-tokens: 24576 → 40960\n.*plan.tokens: 256 → 2048"),
            (["--concurrency", "1,64"], "flags.max-running-requests: 16 → 64"),
            (["--target", "/other"], "target: t → other"),
            (["--experts", "384:8"], r"how.tune.experts: None → \[384, 8\]"),
            (["--tp", "2"], "flags.tp-size: 1 → 2"),
        ],
    )
    def test_a_run_does_not_go_on_under_other_conditions(
        self, tmp_path: Path, words: list[str], said: str
    ) -> None:
        self.fit(self.rig(tmp_path))
        with pytest.raises(SystemExit, match=f"(?s)fit began under other conditions.*{said}.*--name"):
            self.fit(self.rig(tmp_path, *words))

    def test_nor_on_another_card_or_with_other_arms(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.fit(self.rig(tmp_path))
        with pytest.raises(SystemExit, match=r"plan\.arms"):
            self.fit(self.rig(tmp_path), ["chain", "tree:15"])
        monkeypatch.setattr(cells, "card", lambda: "B")
        with pytest.raises(SystemExit, match=r"fingerprint\.card: A → B"):
            self.fit(self.rig(tmp_path))

    @pytest.mark.parametrize("smi", [True, False])
    def test_a_pass_records_memory_and_power_where_there_are_cards(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smi: bool
    ) -> None:
        """The servers of the rig are no strangers to each other."""
        if smi:
            program = ON_PATH.replace("FOLDER", str(tmp_path)).replace("PID", str(os.getpid()))
            (tmp_path / "nvidia-smi").write_text(program)
            (tmp_path / "nvidia-smi").chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        rig = self.rig(tmp_path, "--concurrency", "2", "--tokens", "8")
        folder = self.fit(rig)
        design = tune.Design.from_json(folder.run["plan"])
        wanted = tune.passes.alternating(design)[:2]
        with SseServer() as answering:
            one: Any = SimpleNamespace(port=answering.port, argv=["x"], pids={os.getpid()})
            other: Any = SimpleNamespace(port=answering.port, argv=["y"], pids=set())
            rig.passes(folder, design, wanted, {"chain": one, "tree:7": other})
        ends = [line for line in folder.lines() if line["kind"] == "end"]
        seen = {"memory_mib": 1000, "power_w": 200.0, "others": ["77 game"]} if smi else None
        assert [end["gpu"] for end in ends] == [seen, seen]

    def test_a_server_knows_its_children(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "python"
        child = tmp_path / "child"
        program.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {child}.new\nmv {child}.new {child}\nwait\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        one = server.Server({}, 1, tmp_path / "log")
        try:
            while not child.exists():
                assert one.process.poll() is None
                time.sleep(0.01)
            assert one.pids == {one.process.pid, int(child.read_text())}
        finally:
            one.stop()
