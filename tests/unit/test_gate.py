"""What the gate reads in SGLang's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddtool.agent import start_log
from ddtool.agent.gate import GREEDY, eager_only

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


@pytest.mark.parametrize(
    ("journalctl", "said"),
    [
        ("echo 'it is falling back to greedy argmax verification.'", True),
        ("exit 1", False),
        ("echo 'Compiled without pattern matching support' >&2; exit 1", False),
        ("exec sleep 30", False),
    ],
    ids=["found", "not there", "cannot search", "too slow"],
)
def test_what_a_log_says_is_asked_of_the_journal_and_never_fails(
    journalctl: str, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n{journalctl}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(start_log, "COMMAND_S", 0.5)
    assert start_log.says("0123", GREEDY) is said
