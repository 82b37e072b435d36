"""The audit is read from its end: whoever wants the last lines does not read a file of years."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import audit
from ddtool.agent.registry import Context


def written(tmp_path: Path, count: int, end: str = "\n") -> Context:
    """Lines of two units in turn, each of its own length; every fourth is a start."""
    texts = [
        json.dumps(
            {"unix": n, "unit": f"u{n % 2}", "why": "ä" * (n % 37), "ready_s": n if n % 4 == 0 else None}
        )
        for n in range(count)
    ]
    (tmp_path / audit.FILE).write_text("\n".join(texts) + end)
    return Context(state=tmp_path)


@pytest.mark.parametrize("piece", [1, 7, 100, 101, 1 << 16])
@pytest.mark.parametrize("end", ["\n", '\n{"unix": 99, "un', ""])
def test_every_line_comes_once_wherever_pieces_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, end: str
) -> None:
    monkeypatch.setattr(audit, "PIECE", piece)
    ctx = written(tmp_path, 50, end)
    assert [item["unix"] for item in audit.newest_first(ctx)] == list(range(50))[::-1]


def test_the_last_ones_are_found_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = written(tmp_path, 20_000)
    parsed: list[Any] = []
    real = json.loads

    def loads(text: bytes) -> Any:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(json, "loads", loads)
    assert audit.starts(ctx, "u0") == [19988, 19992, 19996]
    assert (audit.last_of(ctx, "u1") or {})["unix"] == 19999
    assert [item["unix"] for item in audit.audit(ctx, "u0", last=2)] == [19996, 19998]
    assert len(parsed) < 50
    assert audit.starts(ctx, "unknown") == [] and audit.last_of(ctx, "unknown") is None
    assert len(audit.audit(ctx, "u1")) == 10_000
    assert audit.audit(Context(state=tmp_path / "none")) == []
