"""DDTREE servers for tests: the engine's files in a sandbox, a probe beside them, and the trace they write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from support.best_first import best_first, exact_costs
from support.engine_server import EngineServer

from ddtool.engine import engine_files
from ddtool.sandbox import Sandbox, exec_inside

ENGINE = "/opt/under-test/engine"
PROBE = "/opt/under-test/probe"
SWITCHES = "/run/ddtree"
TRACE = f"{SWITCHES}/trace.jsonl"

BUDGET, TOPK, BLOCK = 32, 8, 8
# The demo's tree, one node larger: a width that no power of two divides hides less.
DDTREE: Mapping[str, Any] = {
    "speculative_num_draft_tokens": None,
    "speculative_ddtree_budget": BUDGET,
    "speculative_ddtree_topk": TOPK,
}
_NO_TREE = dict.fromkeys(
    ("speculative_dflash_block_size", "speculative_ddtree_budget", "speculative_ddtree_topk")
)
# Stock DFLASH with the demo's pair.
CHAIN: Mapping[str, Any] = {
    **_NO_TREE,
    "speculative_algorithm": "DFLASH",
    "speculative_num_draft_tokens": BLOCK,
}
# Plain decoding on torch's own attention: the same tokens as the interpreted kernels, in a fraction of the time.
PLAIN: Mapping[str, Any] = {
    **_NO_TREE,
    "attention_backend": "torch_native",
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_draft_attention_backend": None,
    "speculative_num_draft_tokens": None,
}

_WRITE = (
    "import json, pathlib, sys\n"
    "for path, text in json.load(sys.stdin).items():\n"
    "    path = pathlib.Path(path)\n"
    "    path.parent.mkdir(parents=True, exist_ok=True)\n"
    "    path.write_text(text)\n"
)


def install(sandbox: Sandbox) -> None:
    """Put the engine, as a release carries it, and the probe into the sandbox; an older trace goes."""
    probe = Path(__file__).with_name("ddtree_probe.py").read_text()
    info = f"{PROBE}/ddtree_probe-1.dist-info"
    files = {f"{ENGINE}/{path}": content.decode() for path, content in engine_files().items()}
    files |= {
        f"{PROBE}/ddtree_probe.py": probe,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ddtree-probe\nVersion: 1\n",
        f"{info}/entry_points.txt": "[sglang.srt.plugins]\nddtree_probe = ddtree_probe:load\n",
        f"{SWITCHES}/README": "switches of the probe\n",
    }
    inside(sandbox, "python3", "-c", _WRITE, input=json.dumps(files))
    inside(sandbox, "rm", "-f", TRACE)


def environment(*, probe: bool = False, trace: str = "", first: Sequence[str] = ()) -> dict[str, str]:
    """Variables of a server with the engine; `first` goes before it on PYTHONPATH."""
    path = [*first, ENGINE, *([PROBE] if probe else [])]
    return {"PYTHONPATH": ":".join(path), "DDTOOL_ENGINE_TRACE": trace}


def inside(sandbox: Sandbox, *argv: str, input: str | None = None) -> str:
    result = exec_inside(sandbox, argv, input=input)
    assert result.returncode == 0, result.stderr
    return result.stdout


def read_trace(server: EngineServer) -> dict[str, list[dict[str, Any]]]:
    """Rounds by request, in order."""
    rounds: dict[str, list[dict[str, Any]]] = {}
    for line in inside(server.sandbox, "cat", TRACE).splitlines():
        record = json.loads(line)
        rounds.setdefault(record["rid"], []).append(record)
    return rounds


def drafts_after(server: EngineServer, prompt: list[int], tokens: int) -> tuple[list[float], list[float]]:
    """What the drafter says in the last round of a request, and what it says after a fresh prefill of the same text.

    The first depends on keys and values that accepted paths left behind in the drafter's cache, in path order.
    """
    first = server.generate([prompt], tokens)[0]
    last = read_trace(server)[first.meta["id"]][-1]
    server.post("/flush_cache", {})
    again = server.generate([[*prompt, *first.ids][: last["position"]]], 2)[0]
    fresh = read_trace(server)[again.meta["id"]][0]
    assert fresh["position"] == last["position"]
    return [*chain(*last["logprobs"])], [*chain(*fresh["logprobs"])]


def heaps_tree(record: Mapping[str, Any], budget: int = BUDGET) -> set[tuple[int, ...]]:
    """The nodes that the paper's heap chooses for a round, as rank tuples."""
    return set(best_first(exact_costs(record["logprobs"]), budget))


def verified(record: Mapping[str, Any]) -> set[tuple[int, ...]]:
    """The nodes that the target looked at, as the trace says."""
    paths: list[tuple[int, ...]] = [()]
    for parent, rank in zip(record["parents"][1:], record["ranks"][1:], strict=True):
        paths.append((*paths[parent], rank))
    return set(paths[1:])


def tree_accepts(record: Mapping[str, Any], truth: Sequence[int], budget: int = BUDGET) -> int:
    """Drafted tokens that a round takes when the target goes on with `truth`: the heap's tree, walked in Python."""
    tree = heaps_tree(record, budget)
    ranks: tuple[int, ...] = ()
    for ids, token in zip(record["ids"], truth, strict=False):
        if token not in ids or (*ranks, ids.index(token)) not in tree:
            break
        ranks = (*ranks, ids.index(token))
    return len(ranks)


def chain_accepts(record: Mapping[str, Any], truth: Sequence[int]) -> int:
    """The same for the chain of the drafter's first choices."""
    taken = 0
    for ids, token in zip(record["ids"], truth, strict=False):
        if ids[0] != token:
            break
        taken += 1
    return taken


Serve = Callable[..., EngineServer]
