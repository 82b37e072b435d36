"""Failures in words that the signatures were not written from: tests/data/crash_variants.yaml as logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from support import crashlog

VARIANTS = yaml.load(
    (Path(__file__).parents[1] / "data" / "crash_variants.yaml").read_bytes(), yaml.CSafeLoader
)


def log_of(variant: dict[str, Any]) -> str:
    header = "Scheduler hit an exception: Traceback (most recent call last):"
    body = variant["body"].replace("@TB", "Traceback (most recent call last):")
    lines = [
        f"[2026-03-02 04:12:30 {line[5:]}] {header}" if line.startswith("@HIT ") else line
        for line in body.split("\n")
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
