"""Failures in words that the signatures were not written from."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import crashlog

from ddtool.crash.classify import classify

VARIANTS = yaml.load((Path(__file__).parents[1] / "data" / "crash_variants.yaml").read_bytes(), yaml.CSafeLoader)


def log_of(variant: dict[str, Any]) -> str:
    header = "Scheduler hit an exception: Traceback (most recent call last):"
    body = variant["body"].replace("@TB", "Traceback (most recent call last):")
    lines = [
        f"[2026-03-02 04:12:30 {line[5:]}] {header}" if line.startswith("@HIT ") else line for line in body.split("\n")
    ]
    lines = [
        *variant.get("before", "").splitlines(),
        *crashlog.until(variant["phase"], variant.get("context")),
        *lines,
        *(crashlog.KILLED if variant["end"] == "killed" else []),
        *(crashlog.SERVED_ON if variant.get("after") else []),
        *crashlog.manager(variant["end"]),
    ]
    return crashlog.dressed(lines, variant["form"])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: str(variant["id"]))
def test_variant(variant: dict[str, Any]) -> None:
    verdict = classify(io.BytesIO(log_of(variant).encode()))
    assert verdict.category == variant["category"], verdict
    if variant["cause"] is None:
        assert verdict.first_cause is None
    else:
        assert verdict.first_cause and variant["cause"] in verdict.first_cause.text
