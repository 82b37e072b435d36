"""The command line of `bench`: what is refused before a host is touched, and how it goes along."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import mini

from ddtool.bench import objective, run, store
from ddtool.bench.on_host import start_s
from ddtool.bench.passes import Pass, Visit
from ddtool.bench.progress import Progress
from ddtool.bench.store import Folder
from ddtool.cli import main
from ddtool.cli.bench_progress import Watch
from ddtool.deploy.offline import assumed_facts
from ddtool.errors import UsageError, VerificationFailed
from ddtool.profile import load
from ddtool.profile.schema import Objective


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def ddtool(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["ddtool", *args])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    "words",
    [
        ["--arms", "plain,dflash"],
        ["--arms", "chain,chain"],
        ["--workload", "poetry"],
        ["--workload", "code,code"],
        ["--workload", "synthetic:8:8"],  # this profile does not say its vocabulary
        ["--concurrency", "0"],
        ["--concurrency", "1,1"],
        ["--rate", "x"],
        ["--slo", "ttft"],
        ["--repeats", "0"],
        ["--tokens", "1"],
        ["--temperature", "-1"],
        ["--resume", "20200101"],
        ["--resume", "20200101", "--attach"],
        ["--url", "chain=localhost"],
        ["--url", "chain=http://127.0.0.1:1", "--arms", "chain"],
        ["--url", "chain=http://127.0.0.1:1", "--attach"],
    ],
)
def test_bad_words_are_exit_2_and_nobody_is_called(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ddtool(monkeypatch, "bench", str(mini.PROFILE), "--host", "host.invalid", *words) == 2
    assert store.runs() == []


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "--resume", "2026"],
        ["bench", "--attach"],
        ["tune", "--resume", "2026"],
        ["tune", "--from", "2026"],
    ],
)
def test_a_run_that_goes_on_takes_no_other_plan(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also not one that says what is the default."""
    own = ["--lossless", "--arms", "chain"] if words[0] == "bench" else ["--widths", "9"]
    more = ["--concurrency", "4", "--tokens", "256", "--repeats", "7", *own]
    assert ddtool(monkeypatch, *words, *more, "--json") == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert {word for word in more if word.startswith("--")} == set(
        re.findall("--[a-z]+", error["message"])
    ) - {words[1]}
    assert error["hint"].startswith(f"ddtool {' '.join(words)}, or")


def test_compare_of_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ddtool(monkeypatch, "bench", "compare", "2026", "2027") == 2
    assert "bench list" in capfd.readouterr().err


class TestStore:
    def folder(self, tmp_path: Path, name: str = "20261130-014212-3fa9") -> Folder:
        about = {
            "schema": store.SCHEMA,
            "run": name,
            "plan": {},
            "workloads": [],
            "fingerprint": {},
            "how": {},
        }
        return Folder.create(about)

    def test_a_run_is_found_by_the_beginning_of_its_id(self, tmp_path: Path) -> None:
        one = self.folder(tmp_path)
        assert store.find("20261130").path == store.find(str(one.path)).path == one.path
        self.folder(tmp_path, "20261130-020000-0000")
        with pytest.raises(UsageError, match="several runs") as caught:
            store.find("20261130")
        assert "3fa9" in (caught.value.why or "")

    def test_lines_that_a_kill_cut_short_stay_and_do_not_count(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        ident = {"pass": "a/b/v0/r0", "attempt": 1}
        with store.Writer(folder.samples_path) as write:
            write({"kind": "begin", **ident})
        torn = folder.samples_path.read_bytes() + b'{"kind":"end","pass":"a/b/v0/r0","atte'
        folder.samples_path.write_bytes(torn)
        with store.Writer(folder.samples_path) as write:
            write({"kind": "begin", **ident, "attempt": 2})
            write({"kind": "end", **ident, "attempt": 2})
        assert folder.samples_path.read_bytes().startswith(torn + b"\n")
        assert (folder.done(), folder.attempts()) == ({"a/b/v0/r0": 2}, {"a/b/v0/r0": 2})

    def test_a_copy_continues_where_it_ended(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        folder.append_copy(b"one", 0)
        folder.append_copy(b"two", 3)
        assert folder.samples_path.read_bytes() == b"onetwo"
        with pytest.raises(Exception, match="changed while"):
            folder.append_copy(b"two", 3)

    def test_a_half_written_file_never_replaces_a_whole_one(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        with pytest.raises(TypeError):
            folder.keep("run.json", {"run": object()})
        assert folder.run["run"] == "20261130-014212-3fa9"
        assert [path.name for path in folder.path.iterdir()] == ["run.json"]


class TestObjective:
    def cell(self, key: str, concurrency: int | None, **tok_s: float | None) -> dict[str, Any]:
        arms = {arm: {"tok_s": {"median": value}} for arm, value in tok_s.items()}
        return {"cell": {"key": key, "concurrency": concurrency}, "arms": arms}

    WANTED = Objective(tok_s=100, concurrency=1)

    def test_the_slowest_workload_at_that_concurrency_decides(self) -> None:
        cells = [
            self.cell("code-c1", 1, chain=140.0, plain=90.0),
            self.cell("chat-c1", 1, chain=99.0),
            self.cell("code-c4", 4, chain=50.0),
            self.cell("code-r1", None, chain=10.0),
        ]
        judged = objective.judge(self.WANTED, "chain", cells)
        assert judged == {
            "tok_s": 100,
            "concurrency": 1,
            "arm": "chain",
            "cell": "chat-c1",
            "measured": 99.0,
            "met": False,
        }
        assert objective.judge(self.WANTED, "chain", cells[:1])["met"]  # type: ignore[index]

    def test_it_is_not_judged_without_a_measurement(self) -> None:
        cells = [self.cell("code-c4", 4, chain=50.0), self.cell("code-c1", 1, chain=None)]
        for wanted, own in (
            (self.WANTED, "chain"),
            (self.WANTED, "tree:8"),
            (self.WANTED, None),
            (None, "chain"),
        ):
            assert objective.judge(wanted, own, cells) is None
        assert objective.not_judged(self.WANTED, None, [1])
        assert "--concurrency 1" in (objective.not_judged(self.WANTED, "chain", [4, None]) or "")
        assert objective.not_judged(self.WANTED, "chain", [1, 4]) is None
        assert objective.not_judged(None, None, []) is None

    def test_a_loss_and_a_miss_are_told_in_words(self) -> None:
        lost = {"arm": "chain", "cell": "code-c1", "verdict": "differs", "words": "1 of 32 differ"}
        near = {**lost, "verdict": "near-ties"}
        run.check_verified({"objective": None, "lossless": [near]})
        with pytest.raises(VerificationFailed, match="1 of 32 differ"):
            run.check_verified({"objective": None, "lossless": [near, lost]})
        with pytest.raises(VerificationFailed, match="the objective is missed"):
            judged = {"met": False, "measured": 1.0, "tok_s": 2.0, "concurrency": 1, "arm": "a", "cell": "b"}
            run.check_verified({"objective": judged, "lossless": None})


def test_servers_that_resolved_a_flag_differently_are_named() -> None:
    lines = [
        {"kind": "begin", "pass": f"{arm}/code-c1/v0/r0", "server": {"flags": flags}}
        for arm, flags in {
            "plain": {"disable_overlap_schedule": False, "speculative_algorithm": None},
            "chain": {"disable_overlap_schedule": True, "speculative_algorithm": "DFLASH"},
        }.items()
    ]
    (said,) = run.server_differences(lines)
    assert said == "the arms' servers differ in disable_overlap_schedule: False in plain, True in chain"


def test_a_start_is_expected_to_take_its_time_also_when_the_service_is_down() -> None:
    facts = assumed_facts(load("k26-ddtree"))
    facts["service"]["unit"] = {"exists": False}
    assert start_s(facts) > 60
    facts["service"]["starts"] = [30.0, 44.0]
    assert start_s(facts) == 44.0


def test_off_a_terminal_a_pass_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    planned = [Visit("chain", 0, [Pass("chain", "code-c1", 0, repeat) for repeat in range(2)])]
    with Watch(Progress(planned, 5.0)) as watch:
        watch.event({"event": "healthy", "seconds": 3.0, "elapsed_s": 3.0})
        for done, at in ((0, 3.0), (4, 5.0), (8, 7.0), (8, 7.1)):
            watch.event(
                {
                    "event": "pass",
                    "pass": "chain/code-c1/v0/r0",
                    "done": done,
                    "of": 8,
                    "errors": 0,
                    "tok_s": 120.0,
                    "elapsed_s": at,
                }
            )
    lines = [line for line in capfd.readouterr().err.splitlines() if "pass" in line]
    assert lines == ["pass 1 of 2: chain/code-c1/v0/r0, 120.0 tok/s, 4 s left"]


def test_what_was_said_before_an_interruption_is_not_said_again(capfd: pytest.CaptureFixture[str]) -> None:
    events = [{"event": "step", "number": number, "title": "t", "elapsed_s": number} for number in range(4)]
    watch = Watch(Progress([], 0.0))
    for event in events[:2]:
        watch.event(event)
    again = watch.again()
    for event in events:
        again(event)
    said = [line.split("[")[1][0] for line in capfd.readouterr().err.splitlines()]
    assert said == ["0", "1", "2", "3"]


def test_results_are_read_from_a_file_or_a_run(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"schema": "ddtool.bench/1", "cells": []}))
    assert store.result_of(str(path))["schema"] == "ddtool.bench/1"
    path.write_text("{")
    with pytest.raises(Exception, match="not JSON"):
        store.result_of(str(path))
