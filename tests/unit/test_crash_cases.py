"""The labelled logs: first causes found, nothing seen in healthy ones, and the page that says so is up to date."""

from __future__ import annotations

import io
import re
from types import ModuleType

import pytest
from support.crashmut import CASES, MORE
from support.scripts import script

from ddtool.crash.classify import classify


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return script("measure_verdicts")


@pytest.fixture(scope="module")
def judged(measure: ModuleType) -> list:
    return measure.judge_all()


def test_at_least_ninety_of_a_hundred(judged: list) -> None:
    crashes = [each for each in judged if each.case["first_cause_lineno"]]
    wrong = [(each.case["id"], each.verdict.category) for each in crashes if not each.right]
    lines = [each.case["id"] for each in crashes if not each.line_right]
    assert len(wrong) <= 0.05 * len(crashes), wrong
    assert len(lines) <= 0.09 * len(crashes), lines


def test_no_crash_in_a_healthy_log(judged: list) -> None:
    assert [
        each.case["id"] for each in judged if each.case["category"] == "no_crash" and not each.right
    ] == []


def test_seventy_percent_without_the_signatures_of_one_case(judged: list) -> None:
    right = [each.right_left_out for each in judged]
    assert sum(right) >= 0.7 * len(right)


def test_confidence_is_ordered(judged: list) -> None:
    """Also where the signatures did not know the log."""
    shares = []
    for level in ("high", "medium", "low"):
        known = [each.right_left_out for each in judged if each.left_out.confidence == level]
        shares.append(sum(known) / len(known))
    assert shares == sorted(shares, reverse=True)
    assert shares[0] >= 0.9


def test_the_page_is_up_to_date(measure: ModuleType, judged: list) -> None:
    written = measure.PAGE.read_text()
    assert written.startswith(measure.page(judged)), "run docs/measure_verdicts.py"
    assert "## Mutated logs" in written


def test_every_subcode_of_a_label_can_be_said(judged: list) -> None:
    said = sum(
        each.verdict.subcode == each.case["subcode"] for each in judged if each.case["first_cause_lineno"]
    )
    assert said >= 0.9 * len(judged)


def test_logs_written_after_the_signatures() -> None:
    wrong = []
    for case in MORE:
        verdict = classify(io.BytesIO(case["log"].encode()))
        if verdict.category != case["category"]:
            wrong.append((case["id"], verdict.category))
    assert wrong == []


STAMPS = re.compile(
    r"(?m)^[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d (?=\S+ \S+: )|^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:?00 "
)


@pytest.mark.parametrize(
    "case", [case for case in [*CASES, *MORE] if case["category"] == "no_crash"], ids=lambda case: case["id"]
)
def test_a_healthy_log_is_one_without_a_clock(case: dict) -> None:
    """As a paste is whose lines all carry one stamp: then batches behind a line show that it was survived."""
    log = STAMPS.sub("May 21 10:00:00 ", case["log"])
    log = re.sub(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "[2026-05-21 10:00:00", log)
    assert classify(io.BytesIO(log.encode())).category == "no_crash"


def test_a_cause_is_one_short_sentence() -> None:
    for case in [*CASES, *MORE]:
        cause = classify(io.BytesIO(case["log"].encode())).cause
        assert not re.search(r"[a-z)][.!] [A-Z]", cause), (case["id"], cause)
        assert "reserved by PyTorch" not in cause and len(cause) <= 420, (case["id"], cause)
