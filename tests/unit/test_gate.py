"""What the gate reads in SGLang's log."""

from __future__ import annotations

import pytest

from ddtool.agent.gate import eager_only

LINE = (
    "[2026-11-29 20:22:14] Decode batch, #running-req: 1, #token: 36, cuda graph: {}, gen throughput: 670.05"
)
PREFILL = "[2026-11-29 20:22:14] Prefill batch, #new-seq: 1, cuda graph: False, input throughput: 155.55"


@pytest.mark.parametrize(
    ("lines", "eager"),
    [
        ([], False),
        ([PREFILL], False),
        ([LINE.format("True")], False),
        ([LINE.format("False"), LINE.format("True")], False),
        ([PREFILL, LINE.format("False")], True),
    ],
)
def test_only_decoding_without_any_graph_counts(lines: list[str], eager: bool) -> None:
    assert eager_only("\n".join(lines)) is eager
