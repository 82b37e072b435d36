"""`bench` against what people and servers really give it: an error in words, the right exit code, nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.sse_server import SseServer

from ddtool.agent.load_events import Answer, Unreadable
from ddtool.bench import asked, host_run, passes, store, taint, workloads
from ddtool.bench.compare import compare
from ddtool.bench.run import server_differences
from ddtool.bench.store import Folder, Writer
from ddtool.bench.tune import reading
from ddtool.bench.workloads import Prompt, Workload
from ddtool.cli import bench, bench_again, bench_files, main
from ddtool.errors import DdtoolError, Locked, UsageError

URL = ("--url", "chain=http://127.0.0.1:1")  # nobody answers there, which is exit 3
RUN: dict[str, Any] = {
    "schema": store.SCHEMA, "run": "20261130-014212-3fa9", "plan": {}, "workloads": [], "fingerprint": {}, "how": {},
}  # fmt: skip
NO_CELLS = passes.Design(["chain"], [], visits=1, repeats=1, tokens=8, temperature=0.0, seed=1).to_json()


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def ddtool(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["ddtool", *args])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


class TestWords:
    @pytest.mark.parametrize("option", [["--repeats", "1000000000"], ["--prompts", "1000000000"],
                                        ["--tokens", "99999999999999999999"], ["--temperature", "inf"],
                                        ["--temperature", "nan"], ["--rate", "nan"]])  # fmt: skip
    def test_numbers_beyond_all_sense(self, option: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        assert ddtool(monkeypatch, "bench", *URL, *option) == 2
        assert store.runs() == []

    @pytest.mark.parametrize("name", ["nowhere/out.html", ".", "/proc/none/out.html"])
    def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
        self, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert ddtool(monkeypatch, "bench", *URL, "--report", name) == 2
        assert "--report" in capfd.readouterr().err
        assert ddtool(monkeypatch, "tune", "--from", "x", "--out", name) == 2

    @pytest.mark.parametrize("typed", ["nan", "inf", "101", "-1"])
    @pytest.mark.parametrize("command", [("bench", *URL), ("tune", "k26-ddtree", "--host", "host.invalid")])
    def test_a_temperature_is_a_number(
        self, command: tuple[str, ...], typed: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        assert ddtool(monkeypatch, *command, "--temperature", typed) == 2
        assert f"{typed} is no number from 0 to 100" in capfd.readouterr().err

    def test_two_files_of_one_name(self) -> None:
        with pytest.raises(UsageError, match="one file"):
            bench_files.check({"--report": "a", "--out": "./a"})
        with pytest.raises(UsageError, match="the profile that is tuned"):
            bench_files.spare("a.yaml", "./a.yaml")
        bench_files.spare("a.yaml", "b.yaml")

    def test_a_line_that_nests_too_deep(self, tmp_path: Path) -> None:
        (tmp_path / "deep.jsonl").write_text("[" * 100_000)
        with pytest.raises(UsageError, match=r"deep\.jsonl:1"):
            workloads.from_file(tmp_path / "deep.jsonl")

    def test_contexts_of_tune_are_longer_than_any_concurrency(self) -> None:
        assert asked.numbers("4096,32768", int, "--context", workloads.LONGEST) == [4096, 32768]
        with pytest.raises(UsageError, match="up to 1024"):
            asked.numbers("4096", int, "--concurrency")

    @pytest.mark.parametrize("option", ["--context", "--concurrency", "--widths"])
    def test_an_empty_word_is_not_the_default(
        self, option: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        assert ddtool(monkeypatch, "tune", "k26-ddtree", "--host", "host.invalid", option, "") == 2
        assert option in capfd.readouterr().err

    def test_tune_gets_past_its_words_with_long_contexts(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        words = ("tune", "k26-ddtree", "--host", "127.0.0.1:1", "--context", "4096")
        assert ddtool(monkeypatch, *words) == 3, capfd.readouterr().err

    def test_synthetic_prompts_have_bounds(self) -> None:
        with pytest.raises(UsageError, match="at most"):
            workloads.synthetic(9_999_999, 8, 1000, 1)
        assert len(workloads.synthetic(65_536, 8, 1000, 1).prompts) == workloads.SYNTHETIC_PROMPTS

    def test_dry_run_with_json_is_one_object(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert ddtool(monkeypatch, "bench", *URL, "--dry-run", "--json") == 0
        assert json.loads(capfd.readouterr().out)["plan"]["arms"] == ["chain"]


class TestFiles:
    @pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "ddtool.tune/1"}', "junk", "\x00",
                                      '{"schema": "ddtool.bench/1", "cells": [1]}'])  # fmt: skip
    def test_compare_of_junk(
        self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "junk.json").write_text(text)
        status = ddtool(monkeypatch, "bench", "compare", "junk.json", "junk.json", "--json")
        told = json.loads(capfd.readouterr().out)["error"]
        assert status in (1, 2) and "junk.json" in told["message"] and told["hint"]

    def test_a_run_without_a_result_can_be_resumed(self) -> None:
        Folder.create(RUN)
        with pytest.raises(UsageError) as caught:
            store.result_of("20261130")
        assert caught.value.hint == f"ddtool bench --resume {RUN['run']}"

    def test_a_tuning_run_has_no_result_to_compare(self, tmp_path: Path) -> None:
        about = {"how": {"verifies": RUN["run"]}, "run": "20261201-000000-0000"}
        for under, said in ((None, RUN["run"]), (tmp_path / "else", str(tmp_path / "else" / RUN["run"]))):
            fit = Folder.create({**RUN, "how": {"tune": {}}}, under)
            for folder in (fit, Folder.create({**RUN, **about}, under)):
                with pytest.raises(UsageError, match="is a tuning run's") as caught:
                    store.result_of(str(folder.path))
                assert caught.value.hint == f"ddtool tune --from {said}"

    def test_the_traced_pass_is_none_of_an_arm(self) -> None:
        cell = passes.Cell("code", 1, None, 0.0, 1, 8)
        design = passes.Design(["chain"], [cell], visits=1, repeats=2, tokens=8, temperature=0.0, seed=1)
        about = {"plan": design.to_json(), "profile": "p", "host": "h", "created": "now"}
        folder = Folder.create({**RUN, **about, "how": {"tune": {}}})
        with Writer(folder.samples_path) as write:
            for name in ("chain/code-c1/v0/r0", "chain/code-c1/v0/r1", "trace/code-c1/v0/r0"):
                write({"kind": "end", "pass": name, "attempt": 1, "seconds": 1.0})
        row = bench.row_of(folder)
        assert (row["done"], row["of"]) == (2, 2)

    @pytest.mark.parametrize("about", [{}, {**RUN, "schema": "ddtool.bench.run/2"}, {**RUN, "plan": 1}, RUN])
    def test_a_foreign_folder_is_no_run(
        self, about: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run/run.json").write_text(json.dumps(about))
        assert ddtool(monkeypatch, "bench", "--resume", "./run") == 2

    def test_one_broken_folder_hides_no_other(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for name, text in (("20260101-000000-0000", "{"), ("20260101-000000-0001", "{}")):
            (store.root() / name).mkdir(parents=True)
            (store.root() / name / "run.json").write_text(text)
        design = passes.Design(["chain"], [], visits=1, repeats=1, tokens=8, temperature=0.0, seed=1)
        Folder.create({**RUN, "plan": design.to_json(), "profile": "p", "host": "h", "created": "now"})
        assert ddtool(monkeypatch, "bench", "list", "--json") == 0
        out, err = capfd.readouterr()
        assert [row["run"] for row in json.loads(out)["runs"]] == [RUN["run"]]
        assert err.count("left out") == 2

    def test_one_process_at_a_time_adds_to_a_run(self) -> None:
        path = Folder.create(RUN).samples_path
        with Writer(path) as write, pytest.raises(Locked, match=RUN["run"]):
            write({"kind": "begin"})
            Writer(path)
        assert path.read_bytes() == b'{"kind":"begin"}\n'
        Writer(path).__exit__(None, None, None)

    def test_a_full_disk_is_told(self) -> None:
        with Writer(Path("/dev/full")) as write, pytest.raises(DdtoolError, match="No space left") as caught:
            write({"kind": "begin"})
        assert caught.value.hint

    def test_a_data_folder_that_cannot_be(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
        with pytest.raises(DdtoolError, match="cannot be written"):
            Folder.create(RUN)

    def test_lines_of_samples_that_are_none(self) -> None:
        folder = Folder.create(RUN)
        folder.samples_path.write_bytes(
            b'{"kind":"end"}\n{"kind":"begin","pass":1,"attempt":"x"}\n' + b"[" * 100_000 + b"\n"
        )
        assert (folder.done(), folder.attempts()) == ({}, {})


class TestResume:
    def test_what_goes_on_with_a_tuning_run_is_tune(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        fit = Folder.create({**RUN, "how": {"tune": {}}})
        second = Folder.create({**RUN, "run": "20261130-020000-0000", "how": {"verifies": RUN["run"]}})
        bench = Folder.create({**RUN, "run": "20261130-030000-0000"})
        goes_on = f"ddtool tune --resume {RUN['run']}"
        assert bench_again.resuming(fit) == bench_again.resuming(second) == goes_on
        assert bench_again.resuming(bench) == "ddtool bench --resume 20261130-030000-0000"
        assert all(bench_again.attaching(one).endswith(f"; then {goes_on}") for one in (fit, second))
        assert bench_again.attaching(bench) == host_run.ATTACH
        assert ddtool(monkeypatch, "bench", "--resume", second.path.name) == 2
        assert f"next: ddtool tune --resume {RUN['run']}" in capfd.readouterr().err

    def test_dry_run_measures_nothing_and_a_whole_run_asks_no_server(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        cell = passes.Cell("code", 1, None, 0.0, 1, 8)
        design = passes.Design(["chain"], [cell], visits=1, repeats=1, tokens=8, temperature=0.0, seed=1)
        about = {
            "plan": design.to_json(),
            "workloads": ["code"],
            "how": {"urls": {"chain": "http://127.0.0.1:1"}},
        }
        folder = Folder.create({**RUN, **about, "profile": "p", "host": "h"})
        assert ddtool(monkeypatch, "bench", "--resume", str(folder.path)) == 3, "nobody answers there"
        capfd.readouterr()
        assert ddtool(monkeypatch, "bench", "--resume", str(folder.path), "--host", "h", "--drain", "9") == 2
        assert "would ignore --host, --drain" in capfd.readouterr().err
        one = {"pass": "chain/code-c1/v0/r0", "attempt": 1}
        with Writer(folder.samples_path) as write:
            write({"kind": "begin", **one, "unix": 1.0, "warm": "flushed"})
            write({"kind": "sample", **one, "index": 0, "prompt": "p", "sent_s": 0, "chunks": [[0.1, 1], [0.2, 5]],
                   "e2e_s": 0.2, "completion_tokens": 5, "status": 200, "error": None, "finish": "stop"})  # fmt: skip
            write({"kind": "end", **one, "seconds": 0.2})
        capfd.readouterr()
        before = folder.samples_path.read_bytes()
        assert ddtool(monkeypatch, "bench", "--resume", str(folder.path), "--dry-run", "--json") == 0
        assert json.loads(capfd.readouterr().out)["left"] == 0
        assert ddtool(monkeypatch, "bench", "--resume", str(folder.path), "--json") == 0
        assert json.loads(capfd.readouterr().out)["cells"][0]["arms"]["chain"]["tok_s"]["median"] == 25.0
        assert folder.samples_path.read_bytes() == before


class TestServers:
    @pytest.mark.parametrize("meta", ['[{"completion_tokens":5}]', '{"completion_tokens":5,"cached_tokens":"x"}',
                                      '{"completion_tokens":5,"spec_verify_ct":NaN}',
                                      '{"completion_tokens":5,"spec_correct_drafts_histogram":"abc"}'])  # fmt: skip
    def test_an_event_of_another_form_is_a_failed_request(self, meta: str) -> None:
        answer = Answer(keep_text=True)
        answer.take(f'data: {{"text": 7, "output_ids": [1], "meta_info": {meta}}}'.encode(), 1.0)
        with pytest.raises(Unreadable):
            answer.fields()

    def test_ids_that_are_no_list(self) -> None:
        answer = Answer(keep_text=True)
        answer.take(b'data: {"output_ids": 7, "meta_info": {"completion_tokens": 1}}', 1.0)
        with pytest.raises(Unreadable, match="output_ids"):
            answer.fields()

    def test_more_tokens_than_there_are(self) -> None:
        with pytest.raises(Unreadable, match="1000000000000 tokens"):
            Answer(keep_text=False).take(b'data: {"meta_info": {"completion_tokens": 1000000000000}}', 1.0)

    def test_a_server_that_is_none(self, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
        with SseServer() as server:  # it answers /server_info with a stream
            url = f"chain=http://{server.address}:{server.port}"
            assert ddtool(monkeypatch, "bench", "--url", url, "--json") == 3
        told = json.loads(capfd.readouterr().out)["error"]
        assert "does not say what it is" in told["message"] and "API key" not in told["hint"]

    def test_names_that_say_something_else_than_the_server(self) -> None:
        chain = {"speculative_algorithm": "DFLASH"}
        servers: dict[str, tuple[str, dict[str, Any]]] = {
            "plain": ("http://h:1", chain),
            "chain": ("http://h:2", {"speculative_algorithm": None, "disable_cuda_graph": True}),
            "tree:8": ("http://h:2", chain),
            "mine": ("http://h:3", {}),
        }
        said = taint.of_servers(servers)
        assert said == [
            "plain is not what its name says: http://h:1 runs DFLASH",
            "eager: chain decodes without CUDA graphs (disable_cuda_graph)",
            "chain is not what its name says: http://h:2 runs no speculation",
            "tree:8 and chain are one server: http://h:2",
        ]

    def test_versions_that_differ_between_arms(self) -> None:
        lines = [
            {"kind": "begin", "pass": f"{arm}/c/v0/r0", "server": {"version": version, "flags": {}}}
            for arm, version in (("plain", "0.5.12"), ("chain", "0.5.13"))
        ]
        assert server_differences(lines) == [
            "the arms' servers differ in version: 0.5.12 in plain, 0.5.13 in chain"
        ]


class TestNumbers:
    def test_a_warm_cell_is_not_hidden_by_cold_ones(self) -> None:
        lines = [
            {
                "kind": "sample",
                "pass": f"chain/cell{n}/v0/r0",
                "prompt_tokens": 100,
                "cached_tokens": 50 * (n == 7),
            }
            for n in range(50)
        ]
        assert taint.of_samples(lines) == [
            "warm prefix cache: prompts' tokens came out of it: 50% in chain in cell7"
        ]

    def test_taints_of_both_runs_stand_beside_a_tuning_answer(self) -> None:
        fit = Folder.create({**RUN, "plan": NO_CELLS, "taints": ["drift"], "warnings": ["w"]})
        second = Folder.create(
            {**RUN, "plan": NO_CELLS, "run": "20261130-020000-0000", "taints": ["drift"], "warnings": []}
        )
        for folder, arm in ((fit, "trace"), (second, "chain")):
            with Writer(folder.samples_path) as write:
                one = {"pass": f"{arm}/code-c1/v0/r0", "attempt": 1}
                write({"kind": "begin", **one, "warm": "flushed"})
                write(
                    {"kind": "end", **one, "seconds": 1.0, "eager": True, "gpu": {"others": [f"7 of-{arm}"]}}
                )
        assert reading.about(fit, None)["taints"] == ["drift"], "the traced pass is compared with nothing"
        assert reading.about(fit, second)["taints"] == [
            "drift",
            "other processes used the GPU meanwhile: 7 of-chain",
            "eager: chain decoded without CUDA graphs",
        ]
        assert reading.about(fit, second)["warnings"] == ["w"]

    def test_an_answer_of_two_machines_says_so(self) -> None:
        prints = {
            "commit": "a",
            "driver": "560.35",
            "wheels": {"torch": "2.9"},
            "flags": {"chain": {"tp-size": 8}, "trace": {}},
        }
        now = {
            **prints,
            "commit": "b",
            "driver": "570.12",
            "flags": {"chain": {"tp-size": 8}, "tree:7": {}},
        }
        fit = Folder.create({**RUN, "plan": NO_CELLS, "fingerprint": prints})
        again = Folder.create(
            {**RUN, "plan": NO_CELLS, "run": "20261130-020000-0000", "fingerprint": {**prints, "commit": "b"}}
        )
        other = Folder.create({**RUN, "plan": NO_CELLS, "run": "20261130-030000-0000", "fingerprint": now})
        assert reading.about(fit, again)["taints"] == []
        assert reading.about(fit, other)["taints"] == [
            "the verification was measured under other conditions than the fit: driver: 560.35 → 570.12"
        ]

    def test_a_load_is_what_its_name_says(self) -> None:
        workload = Workload("w", [Prompt({"text": str(n)}) for n in range(32)])
        made = passes.cells([workload], [1, 16], [], temperature=0.0, tokens=8, prompts=4, lossless=False)
        assert [(cell.key, cell.prompts) for cell in made] == [("w-c1", 4), ("w-c16", 16)]

    def test_answers_that_go_on_are_not_compared_with_ones_that_end(self) -> None:
        def result(ignore: bool) -> dict[str, Any]:
            cell = {"key": "c", "temperature": 0.0, "prompts": 8, "max_tokens": 8}
            sampling = {"ignore_eos": ignore, "temperature": 0.0}
            return {"run": "r", "profile": "p", "host": "h", "fingerprint": {"sampling": sampling},
                    "cells": [{"cell": cell, "arms": {}}]}  # fmt: skip

        assert compare(result(True), result(True))["cells"]
        with pytest.raises(UsageError, match="ignore_eos"):
            compare(result(True), result(False))
