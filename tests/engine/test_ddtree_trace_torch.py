"""Who is traced: requests for whose rounds a file waits, and nobody else. The agent's side and the engine's."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="tests/engine/core/test_environment.py demands torch in CI")

from ddtool.agent import rounds  # noqa: E402
from ddtool.agent.registry import Context  # noqa: E402
from ddtool.engine.core.trees import TreeBuilder  # noqa: E402
from ddtool.engine.v1 import observers  # noqa: E402
from ddtool.engine.v1.steps import Grown  # noqa: E402

pytestmark = pytest.mark.engine

UNIT = "sglang-test"


def finished(*rids: str) -> Any:
    """A round of these requests in which each accepts two drafted tokens, the second of them a second choice."""
    size = len(rids)
    logprobs = torch.tensor([[-0.1, -3.0], [-0.7, -0.8], [-0.2, -2.0]]).repeat(size, 1, 1)
    ids = torch.arange(6).view(3, 2).repeat(size, 1, 1)
    trees = TreeBuilder(3, 2, 6)(logprobs, ids, torch.full((size,), 9))
    first = int(((trees.depths[0] == 1) & (trees.ranks[0] == 0)).nonzero())
    second = int(((trees.parents[0] == first) & (trees.ranks[0] == 1)).nonzero())
    reqs = [SimpleNamespace(rid=rid, spec_verify_ct=4) for rid in rids]
    nodes = torch.tensor([[0, first, second, second]] * size)
    grown = Grown(trees, trees.depths, logprobs, ids)
    return observers.Round(SimpleNamespace(reqs=reqs), [17] * size, grown, trees.tokens, nodes, [2] * size)


def test_a_waiting_file_gets_its_requests_rounds(tmp_path: Path) -> None:
    observe = observers.RequestTrace(tmp_path / UNIT)
    with rounds.RoundTrace(Context(run=tmp_path), UNIT) as trace:
        assert observers.TRACED_ID.fullmatch(trace.rid), (
            "the agent names requests as the engine looks for them"
        )
        observe(finished("somebody-else", trace.rid))
        (line,) = trace.lines()
        (file,) = (tmp_path / UNIT).iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list((tmp_path / UNIT).iterdir()) == []
    assert (line["rid"], line["round"], line["position"]) == (trace.rid, 3, 17)
    assert (line["path_ranks"], line["accepted"]) == ([0, 1], 2)
    assert line["root"] == 9
    assert line["bonus"] == line["ids"][1][1], "the stand-in's target says at each node what the node says"
    paths: list[tuple[int, ...]] = [()]
    for parent, rank in zip(line["parents"][1:], line["ranks"][1:], strict=True):
        paths.append((*paths[parent], rank))
    assert (0, 1) in paths
    assert len(set(paths)) == 7


@pytest.mark.parametrize(
    "rid",
    [
        "ddtool-rounds-0123456789abcdef",  # well formed, but nobody who may has asked
        "ddtool-rounds-../../../tmp/mine",
        "ddtool-rounds-",
        "0123456789abcdef0123456789abcdef",
    ],
)
def test_nobody_else_is_traced(tmp_path: Path, rid: str) -> None:
    folder = tmp_path / UNIT
    folder.mkdir()
    observers.RequestTrace(folder)(finished(rid))
    assert list(folder.iterdir()) == []


def test_the_switch_traces_everybody(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    observe = observers.VerifyTrace(str(path))
    observe(finished("a", "b"))
    observe(finished("a"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["rid"] for line in lines] == ["a", "b", "a"]


def test_only_the_first_rank_of_a_service_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    group, off = SimpleNamespace(world_size=2), observers.Switches()
    monkeypatch.setenv("DDTOOL_UNIT", UNIT)
    first = observers.observers(off, SimpleNamespace(tp_rank=0), group)
    assert [type(one) for one in first] == [observers.RequestTrace]
    assert observers.observers(off, SimpleNamespace(tp_rank=1), group) == []
    monkeypatch.delenv("DDTOOL_UNIT")
    assert observers.observers(off, SimpleNamespace(tp_rank=0), group) == []
