"""`bench` on the mini service: measured, interrupted, resumed, judged; and the service put back byte for byte."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support.cli import DDTOOL
from support.cli import here as ddtool
from support.remote import output
from support.service import at_rest, look
from support.tree import differences, snapshot

from ddtool.bench import store
from ddtool.bench.store import Folder
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

SHORT = ["--tokens", "12", "--arms", "plain,chain"]


@pytest.fixture(scope="module")
def deployed(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    mini.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", str(mini.PROFILE))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        done = ddtool("deploy", "--yes")
        assert done.returncode == 0, done.stderr
        yield host


@pytest.fixture(scope="module")
def was(deployed: Sandbox) -> dict[str, Any]:
    return look(deployed)


@pytest.fixture(autouse=True)
def before(deployed: Sandbox, was: dict[str, Any]) -> Iterator[None]:
    """Each test ends with every managed file and the service as they were before the first one."""
    yield
    at_rest(deployed)
    assert look(deployed) == was


def bench(*args: str, status: int = 0) -> dict[str, Any]:
    """The result object; the exit status must be this one."""
    done = ddtool("bench", "--yes", "--json", *args)
    assert done.returncode == status, done.stderr
    result: dict[str, Any] = {**json.loads(done.stdout.splitlines()[0]), "stderr": done.stderr}
    return result


class Running:
    """`bench` as a process of its own, which can be interrupted."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [*DDTOOL, "bench", "--yes", *args],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def until_it_says(self, text: str) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}")

    def ends(self) -> tuple[int, str]:
        """Exit status, and what else it said."""
        _, rest = self.process.communicate(timeout=120)
        return self.process.returncode, rest


def check_once(folder: Folder) -> None:
    """Of every pass one attempt has an end, and has each of its requests once."""
    done = folder.done()
    design = folder.run["plan"]
    assert len(done) == len(design["arms"]) * len(design["cells"]) * design["visits"] * design["repeats"]
    samples = Counter(
        (line["pass"], line["index"])
        for line in folder.lines()
        if line["kind"] == "sample" and line["attempt"] == done[line["pass"]]
    )
    assert len(samples) == len(done) * design["cells"][0]["prompts"] and set(samples.values()) == {1}


def test_a_dry_run_leaves_the_host_as_it_is(deployed: Sandbox) -> None:
    first = snapshot(deployed)
    done = ddtool("bench", "--dry-run", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "in this order: plain chain chain plain" in done.stdout and "outage: " in done.stdout
    assert differences(first, snapshot(deployed)) == [] and store.runs() == []


def test_two_visits_an_objective_and_a_second_look(deployed: Sandbox) -> None:
    """What is asked for is missed: exit 8, and all numbers are there."""
    wanted = ["--set", "objective={tok_s: 100000000, concurrency: 4}"]
    result = bench(*SHORT, *wanted, "--repeats", "2", "--concurrency", "1,4", status=8)
    assert "the objective is missed" in result["stderr"]
    judged = result["objective"]
    assert (judged["arm"], judged["cell"], judged["met"]) == ("chain", "code-c4", False)
    for cell in result["cells"]:
        assert {arm: numbers["passes"] for arm, numbers in cell["arms"].items()} == {"plain": 4, "chain": 4}
        assert cell["ratios"][0]["pairs"] == 4 and cell["arms"]["chain"]["accept"]["mean"] > 2
    folder = store.find(result["run"])
    check_once(folder)
    begins = [line for line in folder.lines() if line["kind"] == "begin"]
    order = [(line["pass"].partition("/")[0], line["server"]["invocation"]) for line in begins]
    assert [arm for arm, _ in dict.fromkeys(order)] == ["plain", "chain", "chain", "plain"]
    assert all(line["warm"] == "flushed" for line in begins) and result["taints"] == []
    assert any("overlap scheduler" in warning for warning in result["warnings"])
    mine = folder.samples_path.read_bytes()
    assert (
        mine == output(deployed, f"cat /var/lib/ddtool/bench/{result['run']}/samples.jsonl").encode() + b"\n"
    )

    (folder.path / "samples.jsonl").unlink()  # as on another machine, later
    (folder.path / "run.json").unlink()
    (folder.path / "result.json").unlink()
    folder.path.rmdir()
    again = bench("--attach", status=8)
    assert again["cells"] == result["cells"] and folder.samples_path.read_bytes() == mine


def test_interrupted_and_resumed(deployed: Sandbox) -> None:
    words = [*SHORT, "--repeats", "12", "--visits", "1"]
    running = Running(*words)
    running.until_it_says("pass 4 of 24")
    running.process.send_signal(signal.SIGINT)
    status, said = running.ends()
    assert status == 130 and "puts everything back" in said and "bench --resume" in said
    folder = store.runs()[0]
    kept, done = folder.samples_path.read_bytes(), folder.done()
    assert 4 <= len(done) < 24
    on_host = f"/var/lib/ddtool/bench/{folder.path.name}"
    output(deployed, f"mv {on_host} /root/elsewhere")
    lost = ddtool("bench", "--yes", "--resume", folder.path.name)
    output(deployed, f"mv /root/elsewhere {on_host}")
    assert lost.returncode == 2 and "no longer has what it measured" in lost.stderr
    result = bench("--resume", folder.path.name)
    assert folder.samples_path.read_bytes().startswith(kept)
    assert {name: folder.done()[name] for name in done} == done
    check_once(folder)
    assert [numbers["passes"] for numbers in result["cells"][0]["arms"].values()] == [12, 12]
    changed = ddtool("bench", "--yes", "--resume", folder.path.name, "--set", "graphs.max_bs=2")
    assert changed.returncode == 2 and "flags.plain.cuda-graph-max-bs: 4 → 2" in changed.stderr


@pytest.mark.slow  # what a kill leaves of samples: tests/host/test_bench_load.py, in every run
def test_killed_on_both_sides_and_resumed(deployed: Sandbox) -> None:
    running = Running(*SHORT, "--repeats", "12", "--visits", "1")
    running.until_it_says("pass 4 of 24")
    running.process.kill()
    running.ends()
    output(deployed, "systemctl kill -s KILL 'ddtool-txn-*.service'")
    at_rest(deployed)
    folder = store.runs()[0]
    assert folder.size == 0, "nobody has copied it yet"
    bench("--resume", folder.path.name)
    check_once(folder)


def test_answers_that_differ_are_judged_by_plain_decoding() -> None:
    """The chain changes the sixth token; plain finds both as likely."""
    lossy = ["--set", "env.MINI_LOSSY=5", "--set", "env.MINI_GAP=0.001"]
    result = bench(*SHORT, *lossy, "--lossless", "--repeats", "1", "--visits", "1")
    (entry,) = result["lossless"]
    assert (entry["arm"], entry["samples"], entry["equal"], entry["verdict"]) == ("chain", 32, 0, "near-ties")
    assert "plain starts once more to judge" in result["stderr"]
    (store.find(result["run"]).path / "judged.json").unlink()  # as after a link that was lost meanwhile
    assert bench("--attach")["lossless"] == [entry]


def test_a_chain_that_cannot_sample_is_told() -> None:
    few = [*SHORT, "--repeats", "1", "--visits", "1", "--set", "env.MINI_GREEDY=1"]
    (taint,) = bench(*few, "--temperature", "1")["taints"]
    assert taint.startswith("greedy: chain drew no tokens")
    assert bench(*few)["taints"] == []  # nobody asked it to


def test_an_arm_that_does_not_start_is_told_and_the_run_can_go_on() -> None:
    words = [*SHORT, "--repeats", "1", "--visits", "1", "--set", "env.MINI_CRASH=start"]
    done = ddtool("bench", "--yes", "--json", *words)
    assert done.returncode == 7 and "bench --resume" in done.stderr, done.stderr
    assert "the weights cannot be loaded" in done.stderr


@pytest.mark.slow  # drawing takes as long as measuring; the page itself has tests of its own
def test_the_report_is_one_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "out.html"
    bench(*SHORT, "--repeats", "1", "--visits", "1", "--report", str(page))
    assert page.read_text().lower().startswith("<!doctype html>")
