"""`tune` on a host, with a service whose rounds cost what a tree's width says and whose drafter is known.

The mini service is given a drafter: its first choices are right twice, then its second choice is, then the first ones
again. So the chain takes 2 tokens a round, and a tree takes all 7 as soon as it has 33 nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support.cli import here
from support.remote import output
from support.service import UNIT, active

from ddtool import profile as profiles
from ddtool.bench import store
from ddtool.cli import tune_run
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]

ARGS, HTTP = "sglang/srt/server_args.py", "sglang/srt/entrypoints/http_server.py"
FLAG = '"speculative_num_draft_tokens": None,'
DRAFTER = """
RIGHT = [0, 0, 1, 0, 0, 0, 0]  # which of the drafter's choices the text is, by depth
LOGPROBS = [-0.2, -1.2, -4.0, -5.0, -5.5, -6.0, -6.5, -7.0]
NEEDS = (1, 2, 11, 15, 20, 26, 33)  # nodes that a best-first tree has, to take 1, 2, ... tokens


def gain(args):
    # tokens a round, and its seconds
    if args.speculative_ddtree_budget is None:
        return 3, 0.0116
    budget = int(args.speculative_ddtree_budget)
    return 1 + sum(need <= budget for need in NEEDS), 0.01 + 0.0002 * (budget + 1)


def drafted(depth, right, root):
    return [root + 1 + depth if rank == right else 1000 + rank for rank in range(8)]


def trace(meta, count):
    kind, _, path = os.environ.get("DDTOOL_ENGINE_TRACE", "").partition(",")[0].partition(":")
    if kind == "verify-trace":
        with open(path, "a") as file:
            for root in range(count - 1):
                ids = [drafted(depth, right, root) for depth, right in enumerate(RIGHT)]
                line = {"rid": meta["id"], "round": root, "root": root, "bonus": root + 1}
                line["position"] = meta["prompt_tokens"] + root
                line.update(logprobs=[LOGPROBS] * 7, ids=ids, path_ranks=[], accepted=0)
                file.write(json.dumps(line) + "\\n")


class Server("""


def with_drafter() -> dict[str, bytes]:
    files = mini.dist_files()
    args = files[ARGS].decode().replace(FLAG, f'{FLAG}\n    "speculative_ddtree_budget": None,', 1)
    http = files[HTTP].decode()
    for old, new in (
        ("class Server(", DRAFTER),
        ("-(-count // ACCEPT_LENGTH)", "-(-(count - 1) // gain(args)[0]) or 1"),
        ('        text = "".join(" "', '        trace(meta, count)\n        text = "".join(" "'),
        (
            "        step = ACCEPT_LENGTH if",
            "        args = self.server.args\n        step = gain(args)[0] if",
        ),
        (
            "        ends = [*range(step, len(ids), step), len(ids)]",
            "        ends = [*range(1, len(ids), step), len(ids)]",
        ),
        ("time.sleep(seconds / len(ends))", "time.sleep(gain(args)[1])"),
    ):
        assert http.count(old) == 1, old
        http = http.replace(old, new)
    return {ARGS: args.encode(), HTTP: http.encode()}


@pytest.fixture(scope="module")
def deployed(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    mini.install(host)
    mini.upgrade(host, mini.VERSION, with_drafter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        patch.setenv("DDTOOL_PROFILE", str(mini.PROFILE))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        ddtool("deploy", "--yes")
        yield host


def ddtool(*args: str, status: int = 0) -> tuple[str, str]:
    code, out, err = here(*args)
    assert code == status, err
    return out, err


WORDS = (
    "tune",
    "--widths",
    "8,41",
    "--tokens",
    "33",
    "--prompts",
    "3",
    "--concurrency",
    "1",
    "--repeats",
    "1",
)


def test_the_outage_is_said_first_and_nothing_happens(deployed: Sandbox) -> None:
    before = output(deployed, f"systemctl show -p InvocationID {UNIT}")
    out, err = ddtool(*WORDS, "--dry-run")
    assert f"start {UNIT} 4 times" in out + err
    assert "chain tree:7 tree:40 trace" in out + err
    assert "11 more starts" in err
    assert output(deployed, f"systemctl show -p InvocationID {UNIT}") == before


def test_from_widths_and_a_trace_to_a_verified_overlay(
    deployed: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_run, "VERIFY_VISITS", 1)
    path = tmp_path / "overlay.yaml"
    out, _ = ddtool(*WORDS, "--yes", "--json", "--out", str(path))
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert said["recommendation"]["arm"] == "tree:33"  # the smallest that has the whole path
    assert said["recommendation"]["gain_over_chain"] > 0.5
    rows = {(row["budget"], row["topk"]): row for row in said["acceptance"]}
    assert rows[0, 0]["predicted"] == pytest.approx(rows[0, 0]["measured"], rel=0.01)
    assert rows[40, 8]["predicted"] == pytest.approx(rows[40, 8]["measured"], rel=0.01)
    assert rows[33, 8]["measured"] == pytest.approx(rows[33, 8]["predicted"], rel=0.01)
    judged = rows[40, 8]["judged"]
    assert (judged["over"], judged["alike"], judged["off"]) == ("alike", judged["answers"], 0.0)
    (check,) = (check for check in said["checks"] if check["name"] == "accept length")
    assert check["ok"] and "answers that are the traced texts" in check["detail"]
    assert not [taint for taint in said["taints"] if "other conditions" in taint], "one machine, one day"
    assert {flags["enable-metrics"] for flags in said["fingerprint"]["flags"].values()} == {True}
    assert "enable-metrics" not in path.read_text(), "for timing alone"
    made = profiles.load(str(path))
    assert (made.speculative.algorithm, made.speculative.budget, made.engine.provider) == (
        "DDTREE",
        33,
        "plugin",
    )
    assert active(deployed) == "active"
    assert "every-token" not in output(deployed, f"systemctl show -p Environment {UNIT}")

    fit = next(folder for folder in store.runs() if folder.run["run"] == said["run"])
    again, _ = ddtool("tune", "--from", fit.path.name, "--json")
    assert json.loads(again)["recommendation"] == {
        **said["recommendation"],
        "overlay": json.loads(again)["recommendation"]["overlay"],
    }

    # a link that was cut before the trace was copied: nothing starts again
    trace = (fit.path / "trace.jsonl").read_bytes()
    (fit.path / "trace.jsonl").unlink()
    _, err = ddtool("tune", "--resume", fit.path.name)
    assert "start" not in err
    assert (fit.path / "trace.jsonl").read_bytes() == trace
