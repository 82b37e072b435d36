"""`bench --url` against two small servers: alternation, interruption and resumption byte for byte, what it refuses."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import mini, mini_server
from support.bench_run import designed
from support.cli import here as ddtool

from ddtool.agent import load
from ddtool.bench import by_url, run, store
from ddtool.bench.by_url import Server
from ddtool.bench.store import Folder
from ddtool.errors import ConnectionLost, UsageError

SPECULATIVE = ("--speculative-algorithm", "DFLASH", "--speculative-num-draft-tokens", "8")
LOSSY = {"MINI_LOSSY": "5"}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder = tmp_path_factory.mktemp("mini")
    with ExitStack() as stack:
        yield {
            "plain": stack.enter_context(mini_server.served(folder, "plain")),
            "chain": stack.enter_context(mini_server.served(folder, "chain", *SPECULATIVE, env=LOSSY)),
        }


@pytest.fixture
def servers(ports: dict[str, int]) -> dict[str, Server]:
    return {arm: Server("127.0.0.1", port) for arm, port in ports.items()}


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def begun(servers: dict[str, Server], **changed: Any) -> tuple[Folder, Any]:
    sampling = changed.pop("sampling", {})
    design, loaded = designed(None, list(servers), **changed)
    design = replace(design, sampling=sampling)
    return by_url.prepare(servers, design, loaded, ["code"]), loaded


def urls(ports: dict[str, int]) -> list[str]:
    return [word for arm, port in ports.items() for word in ("--url", f"{arm}=http://127.0.0.1:{port}")]


def test_arms_take_strict_turns_and_every_request_is_there_once(servers: dict[str, Server]) -> None:
    folder, loaded = begun(servers)
    events: list[dict[str, Any]] = []
    by_url.measure(servers, folder, loaded, events.append)
    lines = list(folder.lines())
    order = [line["pass"].partition("/")[0] for line in lines if line["kind"] == "begin"]
    assert (
        order
        == ["plain", "chain"] * 2 + ["chain", "plain"] * 2 + ["plain", "chain"] * 2 + ["chain", "plain"] * 2
    )
    samples = Counter((line["pass"], line["index"]) for line in lines if line["kind"] == "sample")
    assert len(samples) == 16 * 8 and set(samples.values()) == {1}
    assert all(line["error"] is None for line in lines if line["kind"] == "sample")
    assert len(folder.done()) == 16
    begin = next(line for line in lines if line["kind"] == "begin")
    assert begin["warm"] == "flushed" and begin["server"]["flags"]["speculative_algorithm"] is None
    assert {event["pass"] for event in events} == set(folder.done())


def test_interrupted_within_a_pass_and_resumed(servers: dict[str, Server]) -> None:
    folder, loaded = begun(servers, sampling={"mini_slow": 0.06}, prompts=5)
    stop = threading.Event()

    def heard(event: dict[str, Any]) -> None:
        if event["pass"].endswith("v0/r1") and event["done"] == 3:
            stop.set()

    with pytest.raises(load.Stopped):
        by_url.measure(servers, folder, loaded, heard, stop)
    with folder.samples_path.open("ab") as file:
        file.write(b'{"kind":"sample","pass":"chain/co')  # what a kill within a write leaves
    before, done = folder.samples_path.read_bytes(), folder.done()
    assert 0 < len(done) < 16
    by_url.measure(servers, folder, loaded)
    after = folder.samples_path.read_bytes()
    assert after.startswith(before), "kept byte for byte"
    ends = Counter(line["pass"] for line in folder.lines() if line["kind"] == "end")
    assert len(ends) == 16 and set(ends.values()) == {1}
    assert {name: folder.done()[name] for name in done} == done
    assert sorted(set(folder.attempts().values())) == [1, 2]
    result = run.conclude(folder)
    assert [cell["arms"]["chain"]["passes"] for cell in result["cells"]] == [4, 4]
    by_url.measure(servers, folder, loaded)
    assert folder.samples_path.read_bytes() == after, "nothing is left to do"


def test_the_result_by_the_command(ports: dict[str, int]) -> None:
    words = ["--tokens", "12", "--repeats", "2", "--visits", "1", "--slo", "ttft=5s", "--json"]
    status, out, err = ddtool("bench", *urls(ports), *words)
    assert status == 0, err
    result = json.loads(out)
    assert result["schema"] == "ddtool.bench/1"
    (cell,) = result["cells"]
    assert cell["cell"]["key"] == "code-c1" and set(cell["arms"]) == {"plain", "chain"}
    assert cell["arms"]["chain"]["accept"]["mean"] > 2 and cell["arms"]["plain"]["accept"] is None
    assert cell["arms"]["chain"]["goodput"] > 0
    assert (result["objective"], result["lossless"]) == (None, None)
    assert {entry["gpu"] for entry in cell["arms"].values()} == {None}, "not seen from here, which is not 0"
    assert set(result["fingerprint"]["prompts"]) == {"code"}
    assert "pass 4 of 4: " in err
    (listed,) = store.runs()
    assert listed.path.name == result["run"] and store.result_of(result["run"][:15])["cells"]
    assert json.loads(ddtool("bench", "list", "--json").stdout)["runs"][0]["done"] == 4
    status, out, err = ddtool("bench", "compare", result["run"], result["run"], "--json")
    assert (status, json.loads(out)["schema"]) == (0, "ddtool.bench.compare/1"), err


@pytest.mark.parametrize(("gap", "status", "verdict"), [("0.01", 0, "near-ties"), ("2.5", 8, "differs")])
def test_a_loss_is_told_from_a_near_tie(
    gap: str, status: int, verdict: str, ports: dict[str, int], tmp_path: Path
) -> None:
    """The chain here says something else from the sixth token on."""
    with mini_server.served(tmp_path, "judge", env={"MINI_GAP": gap}) as port:
        words = ["--tokens", "12", "--repeats", "1", "--visits", "1", "--lossless", "--json"]
        done = ddtool("bench", *urls({**ports, "plain": port}), *words)
    assert done.returncode == status, done.stderr
    (entry,) = json.loads(done.stdout)["lossless"]
    assert (entry["arm"], entry["samples"], entry["verdict"]) == ("chain", 32, verdict)
    assert {one["position"] for one in entry["divergences"]} == {5}
    assert ("must not change what the model says" in done.stderr) == (status == 8)


def test_a_chat_is_sent_as_the_servers_template_renders_it(ports: dict[str, int], tmp_path: Path) -> None:
    """Also where plain decoding is asked about differences: it is sent the same tokens, and what was said."""
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(f'{{"messages": {json.dumps(chat(number))}}}\n' for number in range(32)))
    words = [
        "--workload",
        str(path),
        "--tokens",
        "12",
        "--repeats",
        "1",
        "--visits",
        "1",
        "--lossless",
        "--json",
    ]
    done = ddtool("bench", *urls(ports), *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [entry["verdict"] for entry in result["lossless"]] == ["near-ties"]
    samples = [line for line in store.runs()[0].lines() if line["kind"] == "sample"]
    assert len(samples) == 64 and {one["prompt_tokens"] for one in samples} == {5}
    with mini_server.served(tmp_path, "bare", env={"MINI_NO_TEMPLATE": "1"}) as port:
        refused = ddtool("bench", *urls({"plain": port}), *words[:-2])
    assert refused.returncode == 3 and "the tokenizer has no chat template" in refused.stderr


def chat(number: int) -> list[dict[str, str]]:
    """Two words and the number; the template adds who speaks, and who is to answer."""
    return [{"role": "user", "content": f"say it {number}"}]


def test_the_objective_of_a_profile_is_judged(ports: dict[str, int]) -> None:
    words = ["bench", str(mini.PROFILE), *urls(ports), "--json"]
    words += ["--tokens", "12", "--repeats", "1", "--visits", "1"]
    for wanted, status in (("1", 0), ("100000000", 8)):
        overrides = ["--set", f"objective={{tok_s: {wanted}, concurrency: 2}}"]
        done = ddtool(*words, *overrides)
        assert done.returncode == status, done.stderr
        judged = json.loads(done.stdout)["objective"]
        assert (judged["arm"], judged["cell"], judged["met"]) == ("chain", "code-c2", status == 0)
        assert ("the objective is missed" in done.stderr) == (status == 8)
    overrides = ["--set", "objective={tok_s: 1, concurrency: 2}", "--concurrency", "1"]
    done = ddtool(*words, *overrides)
    assert (done.returncode, json.loads(done.stdout)["objective"]) == (0, None), done.stderr


def test_a_server_that_goes_away_leaves_what_was_measured(servers: dict[str, Server], tmp_path: Path) -> None:
    """Away before the first pass; and behind its own first one."""
    with ExitStack() as living:
        port = living.enter_context(mini_server.served(tmp_path, "mortal"))
        both = {**servers, "chain": Server("127.0.0.1", port)}
        folder, loaded = begun(both, concurrency="1", repeats=2)

        def heard(event: dict[str, Any]) -> None:
            if event["pass"] == "chain/code-c1/v0/r0" and event["done"] == event["of"]:
                living.close()

        with pytest.raises((ConnectionLost, load.NoServer)):
            by_url.measure(both, folder, loaded, heard)
    done = folder.done()
    assert {"plain/code-c1/v0/r0", "chain/code-c1/v0/r0"} <= done.keys() and len(done) < 8
    kept = folder.samples_path.read_bytes()
    with pytest.raises(ConnectionLost) as caught:
        by_url.measure(both, folder, loaded)
    assert str(port) in caught.value.message
    assert folder.samples_path.read_bytes() == kept


def test_a_resumed_run_must_be_of_the_same_servers(servers: dict[str, Server]) -> None:
    folder, _ = begun(servers, concurrency="1", repeats=1)
    about = folder.run
    about["fingerprint"]["flags"]["chain"]["speculative_num_draft_tokens"] = 16
    about["fingerprint"]["commit"] = "another one, which is no reason"
    folder.keep("run.json", about)
    refused = ddtool("bench", "--resume", folder.path.name)
    assert refused.returncode == 2
    assert "flags.chain.speculative_num_draft_tokens: 16 → 8" in refused.stderr
    about["fingerprint"]["flags"]["chain"]["speculative_num_draft_tokens"] = 8
    folder.keep("run.json", about)
    assert ddtool("bench", "--resume", folder.path.name).returncode == 0
    assert len(folder.done()) == 4


@pytest.mark.parametrize(
    "pair", ["chain", "chain=", "chain=127.0.0.1:1", "chain=https://h:1", "chain=http://h", "chain=http://h:1/v1",
             "=http://h:1", "chain=http://h:99999", "chain=http://u@h:1", "a/b=http://h:1"],
)  # fmt: skip
def test_what_is_no_url(pair: str) -> None:
    with pytest.raises(UsageError):
        by_url.parse([pair])


def test_urls() -> None:
    found = by_url.parse(["chain=http://h:1/", "tree:32=http://[::1]:2"], "key")
    assert found == {"chain": Server("h", 1, "key"), "tree:32": Server("::1", 2, "key")}
    assert found["tree:32"].url == "http://[::1]:2"
    with pytest.raises(UsageError, match="twice"):
        by_url.parse(["chain=http://h:1", "chain=http://h:2"])


def test_nobody_listens_there() -> None:
    with pytest.raises(ConnectionLost, match="does not answer"):
        by_url.look(Server("127.0.0.1", mini_server.free_port()))
