"""What an experiment has shown, judged from the log of its run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ddtool.agent import outcome
from ddtool.agent.journal_text import marker
from ddtool.agent.outcome import Seen, judge

ENDED = {"result": "exit-code", "exit_status": 3}
START = "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=95 GB\n"
SERVES = START + "INFO:     Uvicorn running on http://127.0.0.1:30000\n"


def mark(event: str, patch: str = "p", sha: str = "s", **fields: Any) -> str:
    return (
        "ddtool-diag/1 " + json.dumps({"patch": patch, "sha": sha, "event": event, "pid": 7, **fields}) + "\n"
    )


LOADED = mark("loaded")
RAN = LOADED + mark("reached")
ANSWERED: dict[str, Any] = {"ready": True, "asked": 2, "answered": 2}


@pytest.mark.parametrize(
    ("log", "how", "expected", "conclusion"),
    [
        (LOADED + SERVES + mark("none", index=4), {**ANSWERED}, "fired", "confirmed"),
        (LOADED + SERVES + mark("none"), {"ended": ENDED}, "fired", "confirmed"),
        (LOADED + START + mark("size"), {"ready": False}, "fired", "confirmed"),
        (RAN + SERVES, {**ANSWERED}, "not fired", "refuted"),
        (LOADED + SERVES, {**ANSWERED}, "not fired", "inconclusive"),
        (SERVES, {**ANSWERED}, "not fired", "inconclusive"),
        (RAN + SERVES, {**ANSWERED, "answered": 1, "refused": 1}, "not fired", "inconclusive"),
        (RAN + SERVES, {**ANSWERED, "ended": ENDED}, "crashed elsewhere", "refuted"),
        (RAN + SERVES, {"ended": ENDED}, "crashed elsewhere", "refuted"),
        (LOADED + SERVES, {"ended": ENDED}, "crashed elsewhere", "inconclusive"),
        (
            RAN + START + "[x TP0] Prefill batch, #new-seq: 1",
            {"ended": ENDED},
            "crashed elsewhere",
            "refuted",
        ),
        (SERVES, {"ended": ENDED}, "crashed elsewhere", "inconclusive"),
        (RAN + START, {"ended": ENDED}, "other failure first", "inconclusive"),
        (LOADED + START, {}, "hung", "inconclusive"),
        (LOADED + SERVES, {**ANSWERED, "answered": 1}, "hung", "inconclusive"),
    ],
)
def test_outcomes(log: str, how: dict[str, Any], expected: str, conclusion: str) -> None:
    judged = judge(Seen(log=log, patch="p", sha="s", **how))
    assert (judged["outcome"], judged["conclusion"]) == (expected, conclusion)
    assert judged["why"] or conclusion != "inconclusive"


def test_code_that_never_ran_refutes_nothing_and_says_what_to_do() -> None:
    """Loaded by two processes, and its check came to nothing to look at in either."""
    log = LOADED + mark("loaded", pid=8) + SERVES
    judged = judge(Seen(log=log, patch="p", sha="s", not_reached="no graph; turn graphs on", **ANSWERED))
    assert (judged["outcome"], judged["conclusion"]) == ("not fired", "inconclusive")
    assert judged["why"] == "the patched code never ran: no graph; turn graphs on"
    assert len(judged["loaded_by"]) == 2 and judged["reached_by"] == []


def test_who_ran_the_code_is_said_beside_who_loaded_it() -> None:
    log = RAN + mark("reached", sha="old", pid=8) + mark("loaded", pid=8) + SERVES
    judged = judge(Seen(log=log, patch="p", sha="s", rank_of={7: 0, 8: 1}, **ANSWERED))
    assert (judged["outcome"], judged["conclusion"], judged["counts"]) == ("not fired", "refuted", {})
    assert judged["reached_by"] == [{"pid": 7, "rank": 0}]
    assert judged["loaded_by"] == [{"pid": 7, "rank": 0}, {"pid": 8, "rank": 1}]


def test_only_this_version_of_this_patch_counts() -> None:
    log = SERVES + mark("loaded", sha="old") + mark("none", sha="old") + mark("none", patch="other")
    assert judge(Seen(log=log, patch="p", sha="s", **ANSWERED))["outcome"] == "not fired"


def test_a_proof_that_could_not_be_written_is_no_finding() -> None:
    log = LOADED + SERVES + mark("unproven", why="disk full")
    assert judge(Seen(log=log, patch="p", sha="s", **ANSWERED))["outcome"] == "not fired"


@pytest.mark.parametrize("event", ["blind", "unmeasured"])
def test_a_check_that_failed_is_no_finding_and_refutes_nothing(event: str) -> None:
    log = LOADED + SERVES + mark(event, why="AttributeError: x")
    judged = judge(Seen(log=log, patch="p", sha="s", **ANSWERED))
    assert (judged["outcome"], judged["conclusion"]) == ("not fired", "inconclusive")
    assert "AttributeError: x" in judged["why"] and judged["failures"][0]["event"] == event
    fired = judge(Seen(log=log + mark("none"), patch="p", sha="s", **ANSWERED))
    assert fired["conclusion"] == "confirmed"


NESTED = f'ddtool-diag/1 {{"a": {"[" * 100_000}}}'


@pytest.mark.parametrize(
    "line", ["", "ddtool-diag/1 {", "ddtool-diag/1 {broken}", "ddtool-diag/2 {}", NESTED], ids=len
)
def test_other_lines_are_no_markers(line: str) -> None:
    assert marker(line) is None


def test_a_marker_may_stand_behind_a_prefix() -> None:
    assert marker('[x TP1] ddtool-diag/1 {"event": "none"}') == {"event": "none"}


def test_ranks_come_from_the_processes_when_a_marker_names_none() -> None:
    log = LOADED + mark("none", rank=None) + mark("none", rank=5)
    judged = judge(Seen(log=log, patch="p", sha="s", rank_of={7: 3}, **ANSWERED))
    assert [item["rank"] for item in judged["events"]] == [3, 5]
    assert judged["loaded_by"] == [{"pid": 7, "rank": 3}]


def test_a_flood_of_events_is_counted_and_cut() -> None:
    judged = judge(Seen(log=mark("none") * 500 + mark("shape"), patch="p", sha="s", **ANSWERED))
    assert judged["counts"] == {"none": 500, "shape": 1}
    assert len(judged["events"]) == outcome.KEPT_EVENTS


def test_the_phase_is_the_slowest_ranks() -> None:
    log = START + "[x TP1] Load weight end.\n[x TP1] KV Cache is allocated\n"
    judged = judge(Seen(log=log, patch="p", sha="s"))
    assert judged["ranks"] == {"0": "loading weights", "1": "KV pool allocated"}
    assert judged["phase"] == "loading weights"
    assert judge(Seen(log="", patch="p", sha="s"))["phase"] == "before its first line"
