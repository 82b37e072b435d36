"""What of the GPU scripts needs no GPU: packing, resuming, comparing, and the form of what they write."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import arms
import builder
import carry
import cells
import clients
import faults
import heavy
import measure
import profile_rounds
import pytest
import sampled
import server
import slot
import soak
import tp8
import tune

from ddtool.diagnostics import definition
from ddtool.journal.records import Record


def completion(*ids: int, rounds: int | None = None) -> server.Completion:
    return server.Completion(list(ids), {"completion_tokens": len(ids), "spec_verify_ct": rounds})


@pytest.mark.parametrize("limit", [carry.MIB, carry.MIB + 1, 5 * carry.MIB])
def test_parts_are_few_within_the_limit_and_whole_again(limit: int) -> None:
    stream = bytes(range(256)) * (3 * 4096) + b"end"
    parts = carry.split(stream, limit)
    assert b"".join(parts) == stream
    assert max(map(len, parts)) <= limit
    assert len(parts) == -(-len(stream) // limit)


def test_a_working_tree_that_leaves_no_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="working tree"):
        carry.split(b"x", 0)


def test_every_prompt_ends_inside_a_line() -> None:
    texts = cells.prompts(32)
    assert len(set(texts)) == 32
    assert not [text for text in texts if text.rpartition("\n")[2].isspace()]


def test_a_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    first = cells.Cells(tmp_path / "state", "run", {"commit": "abc"})
    first.write("one", {"tok_s": 1})
    again = cells.Cells(tmp_path / "state", "run", {"commit": "def"})
    assert again.missing(["one", "two"]) == ["two"]
    assert again.read("one") == {
        "schema": cells.SCHEMA,
        "run": "run",
        "cell": "one",
        "commit": "abc",
        "tok_s": 1,
    }
    with tarfile.open(tmp_path / "run.tar.gz") as archive:
        assert "run/one.json" in archive.getnames()


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("plain", {}),
        ("chain", {"speculative-algorithm": "DFLASH"}),
        ("tree:16:4:seed", {"speculative-ddtree-budget": 16, "speculative-ddtree-chain-seed": "true"}),
        ("tree:32", {"speculative-ddtree-budget": 32, "speculative-ddtree-topk": 8}),
        ("plain@1", {"tp-size": 1}),
        ("tree:31@2", {"tp-size": 2, "speculative-ddtree-budget": 31}),
    ],
)
def test_arms(text: str, flags: dict[str, object]) -> None:
    assert flags.items() <= dict(server.Arm.parse(text, Path("draft")).flags).items()


@pytest.mark.parametrize(
    "text", ["tree", "tree:seed", "tree:1:2:3", "chains", "bush:32", "plain:1", "plain@x"]
)
def test_no_arms(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected plain, chain or tree|invalid literal"):
        server.Arm.parse(text, Path("draft"))


def test_flags_become_words() -> None:
    assert server.arguments({"page-size": 1, "disable-x": True}) == ["--page-size", "1", "--disable-x"]


def test_accept_length_and_time_of_a_round() -> None:
    one = measure.Pass(seconds=1.1, rounds=10, completions=[completion(*range(40), rounds=10)])
    result = measure.summary([one, one, one], prefill_seconds=0.1)
    assert (result["accept_length"], result["ms_per_round"]) == (4, 100)
    assert result["tok_s"] == pytest.approx(40 / 1.1, abs=0.01)


def test_accept_length_in_a_batch_is_of_requests() -> None:
    group = [completion(*range(40), rounds=10), completion(*range(40), rounds=20)]
    result = measure.summary([measure.Pass(1, 20, group)], 0)
    assert result["accept_length"] == pytest.approx(80 / 30, abs=1e-4)
    assert result["ms_per_round"] == 50


def test_the_first_difference_is_listed() -> None:
    plain, found = [completion(1, 2, 3), completion(1, 2, 3)], [completion(1, 2, 3), completion(1, 5, 6)]
    listed = measure.divergences(["a", "b"], plain, found, None)
    assert listed == [{"prompt": 1, "position": 1, "plain": 2, "found": 5}]


def test_output_as_records(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    faults.write_records(path, ["first", "second"], pid=7)
    records = [Record.from_json(json.loads(text)) for text in path.read_text().splitlines()]
    assert [(record.seq, record.source, record.text) for record in records] == [
        (0, "local-runner", "first"),
        (1, "local-runner", "second"),
    ]


@pytest.mark.parametrize("case", [case for case in faults.CASES if case.outcomes], ids=lambda case: case.name)
def test_a_fault_is_judged_as_diag_run_would(case: faults.Case) -> None:
    """From a log with what each case expects of its server, the judgement is the outcome that the case expects."""
    for name, outcome in case.outcomes.items():
        sha = definition.load(name).sha
        about = {"patch": name, "sha": sha, "worker": "draft", "rank": 0, "pid": 7}
        events = ["loaded", "reached", "width" if name == "graph-shapes" else "none"]
        events = events if outcome == "fired" else events[:2]
        log = [
            "Uvicorn running on http://127.0.0.1",
            *(marker_line({**about, "event": event}) for event in events),
        ]
        judged = faults.judgement(name, log, case.survives, None if case.survives else -9)
        assert judged["outcome"] == outcome
        assert judged["conclusion"] == ("confirmed" if outcome == "fired" else "refuted")
        assert judged["hypothesis"] and judged["source"] == "local-runner"


def marker_line(item: dict[str, object]) -> str:
    return f"[2026-01-01 00:00:00 TP0] ddtool-diag/1 {json.dumps(item)}"


def test_a_trace_adds_up() -> None:
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "ts": 0, "dur": 10}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 390, "dur": 10}
    found = profile_rounds.totals([{"ph": "M", "name": "meta"}, *[copy] * 40, kernel], rounds=40)
    assert found["copies_to_host"] == 1
    assert found["us_between_rounds"] == 10
    assert found["longest_on_gpu_us"] == {"Memcpy DtoH (Device -> Pageable)": 10, "gemm": 0.25}


def test_collectives_and_idle_time_are_told_apart() -> None:
    kernels = [("ncclDevKernel_AllReduce_Sum_bf16", 0, 30), ("gemm", 60, 40)]
    events = [{"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": dur} for name, at, dur in kernels]
    found = profile_rounds.totals(events, rounds=10)
    assert (found["collectives_us"], found["gpu_busy_us"], found["gpu_idle_us"]) == (3, 7, 3)


SAMPLED = ["--name", "x", "--target", "t", "--draft", "d", "--commit", "c", "--arms", "chain"]


class Drafting:
    """In the place of a server: answers of three tokens, by prompt, in so many rounds."""

    def __init__(self, rounds: int | None, log: Path) -> None:
        self.argv, self.log, self.rounds = ["launch"], log, rounds
        log.write_text("")

    def pass_of(self, asked: list[str], *_: object) -> measure.Pass:
        found = [completion(cells.prompts(4).index(text), 7, 7, rounds=self.rounds) for text in asked]
        return measure.Pass(1, 1, found)


@pytest.mark.parametrize("prompts", [1, 3])
def test_answers_drawn_in_turn_are_told_apart_by_prompt(
    prompts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sampled, "one_pass", Drafting.pass_of)
    options = sampled.parser().parse_args([*SAMPLED, "--prompts", str(prompts), "--answers", "5"])
    servers = {sampled.PLAIN: Drafting(None, tmp_path / "a"), "chain": Drafting(1, tmp_path / "b")}
    drawn = sampled.draw_all(servers, 16, options)  # type: ignore[arg-type]
    assert list(drawn) == ["plain", "plain again", "chain", "chain at 0.8 T"]
    for row, one in drawn.items():
        assert one.answers == {str(n): [[n, 7, 7]] * 5 for n in range(prompts)}
        assert one.rounds == {str(n): [1 if row.startswith("chain") else None] * 5 for n in range(prompts)}


def test_what_was_drawn_before_a_cut_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batch 16 is drawn, then the machine is gone; all the next command needs of servers is batch 1."""
    asked: list[int] = []
    lent = [16]  # batches that the machine lives through

    def pass_of(server: Drafting, texts: list[str], batch: int, *_: object) -> measure.Pass:
        asked.append(batch)
        if batch not in lent:
            raise OSError("gone")
        return server.pass_of(texts)

    def start(options: object, done: cells.Cells, stack: object) -> dict[str, Drafting]:
        rounds = {sampled.PLAIN: None, "chain": 1, "tree:8": 2}
        return {arm: Drafting(count, done.log(cells.arm_file(arm))) for arm, count in rounds.items()}

    monkeypatch.setattr(sampled, "one_pass", pass_of)
    monkeypatch.setattr(sampled, "start", start)
    more = ["tree:8", "--answers", "20", "--cells", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["sampled.py", *SAMPLED, *more])
    with pytest.raises(OSError, match="gone"):
        sampled.main()
    assert asked.count(16) == 6 and not list(tmp_path.rglob("*.json"))
    lent.append(1)
    monkeypatch.setattr(sys, "argv", ["sampled.py", *SAMPLED, *more, "--commit", "later"])
    sampled.main()
    assert asked.count(16) == 6
    first, second = (
        json.loads((tmp_path / "sampled-x" / f"{name}.json").read_text()) for name in ("b16", "b1")
    )
    assert (first["commit"], second["commit"]) == ("c", "later"), "whoever drew them"
    assert first["argv"] == {arm: ["launch"] for arm in ("plain", "chain", "tree:8")}
    rows = {row: (one["accept_length"], one["accepted"]) for row, one in first["rows"].items()}
    assert rows["plain again"] == (1, 0) and rows["chain"] == (3, 80) and rows["tree:8"] == (1.5, 0)
    assert first["accepted_nothing"] == ["tree:8", "tree:8 at 0.8 T"]
    out = capsys.readouterr().out
    assert "accept 3.000" in out and "ACCEPTED NOTHING" in out


def test_a_sampled_arm_that_draws_otherwise_is_said_to_differ(tmp_path: Path) -> None:
    options = sampled.parser().parse_args([*SAMPLED, "--cells", str(tmp_path)])
    done = cells.open_cells(options, "sampled-x")
    servers = {"plain": Drafting(None, tmp_path / "a"), "chain": Drafting(1, tmp_path / "b")}
    servers["chain"].log.write_text("DFLASH is falling back to greedy\n")
    rolled = {"0": [[n % 6, n % 2] for n in range(240)]}
    loaded = {"0": [[n % 6 if n % 3 else 5, n % 2] for n in range(240)]}
    answers = {"plain": rolled, "plain again": rolled, "chain": loaded}
    drawn = {row: sampled.Row(one, {"0": [1] * 240}) for row, one in answers.items()}
    cell = sampled.judge(sampled.drawn_by(servers, 16, options, done), drawn)  # type: ignore[arg-type]
    assert [(row, one["differs"]) for row, one in cell["rows"].items()] == [
        ("plain again", False),
        ("chain", True),
    ]
    assert cell["sampling_fell_back"] == ["chain"]
    lines = list(sampled.table(cell))
    assert "DIFFERS" in lines[2] and lines[-1].endswith("chain")


@pytest.mark.parametrize(
    ("at_once", "tokens", "room"), [(16, 256, 24576), (32, 256, 24576), (64, 256, 49152), (32, 1024, 49152)]
)
def test_servers_have_room_for_what_is_asked_at_once(at_once: int, tokens: int, room: int) -> None:
    flags, _ = server.platform("gpu", at_once, tokens)
    assert flags["max-running-requests"] == flags["cuda-graph-max-bs"] == at_once
    assert flags["max-total-tokens"] == room


SCRIPTS = {
    module.__name__: module for module in (arms, builder, clients, heavy, profile_rounds, sampled, soak, tune)
}
ON_ONE = slot.Machine(Path("/pair"), Path("/home"), ("--commit", "abc", "--cells", "/cells"))


BENCH_CLIENT = """
import json, sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
width = given["--concurrency"]
print(json.dumps({"given": given, "runs": [], "ratios": {width: {"tok_s": {"median": 1.01, "values": []}}}}))
"""


def test_both_clients_ask_a_server_that_runs_and_each_number_of_streams_is_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--name", "x", "--target", "/t", "--draft", "/d", "--commit", "c", "--cells", str(tmp_path)]
    taken = subprocess.run(
        [sys.executable, str(clients.BOTH), "--help"], capture_output=True, text=True, check=True
    )
    for word in clients.command(clients.parser().parse_args(words), 16)[2:]:
        assert word.partition("=")[0] in taken.stdout
    monkeypatch.setattr(clients, "BOTH", tmp_path / "both.py")
    clients.BOTH.write_text(BENCH_CLIENT)
    monkeypatch.setattr(clients, "start", lambda *_: Drafting(None, tmp_path / "log"))
    monkeypatch.setattr(sys, "argv", ["clients.py", *words])
    clients.main()
    made = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "clients-x").glob("*.json")}
    assert {name: cell["given"]["--concurrency"] for name, cell in made.items()} == {
        "c1": "1",
        "c16": "16",
        "c64": "64",
    }
    assert made["c1"]["argv"] == ["launch"] and made["c1"]["given"]["--url"] == "http://127.0.0.1:32100"
    assert "c64  tok_s 1.010" in capsys.readouterr().out
    monkeypatch.setattr(clients, "start", None)
    clients.main()  # all cells are there


def plans() -> dict[str, list[slot.Step]]:
    made = {name: each.plan(replace(ON_ONE, tp=each.cards)) for name, each in slot.SLOTS.items()}
    options = tp8.parser().parse_args([])
    return made | {f"tp{tp}": tp8.steps(replace(ON_ONE, tp=tp), options) for tp in (2, 8)}


@pytest.mark.parametrize("name", plans())
def test_every_command_of_a_slot_is_one_that_its_script_takes(name: str) -> None:
    for step in plans()[name]:
        options = SCRIPTS[step.script].parser().parse_args(step.words)
        for arm in getattr(options, "arms", ()):
            server.Arm.parse(arm, options.draft)
        if hasattr(options, "env"):
            cells.variables(options.env)
        assert Path(step.argv[1]).is_file()


def test_no_two_measurements_share_their_cells() -> None:
    names = [
        (step.script, step.words[step.words.index("--name") + 1])
        for steps in plans().values()
        for step in steps
        if "--name" in step.words
    ]
    assert len(set(names)) == len(names)


def test_a_slot_is_listed_without_being_run() -> None:
    command = [sys.executable, str(Path(slot.__file__)), "d", "--commit", "abc", "--list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[2].rpartition("/")[2] for line in lines] == ["arms.py", "soak.py"]
    assert all("--tp 2" in line for line in lines)


def test_a_heavy_target_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    command = [sys.executable, str(Path(slot.__file__).with_name("heavy.py")), "/nowhere", str(tmp_path)]
    command += ["--layers", "1", "--ffn", "8"]
    assert "there already" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_variables() -> None:
    assert cells.variables(["A=1", "B=x=y"]) == {"A": "1", "B": "x=y"}
    with pytest.raises(SystemExit, match="NAME=VALUE"):
        cells.variables(["A"])
