"""Made-up results for tests of reports: see tests/data/bench/make.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "bench"


def example(name: str) -> dict[str, Any]:
    """A fresh copy of result, tune, compare or ugly."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def numbers(value: Any) -> Iterator[float]:
    """Every number in it, and every key that is one."""
    if isinstance(value, dict):
        for below in value.values():
            yield from numbers(below)
    elif isinstance(value, list):
        for below in value:
            yield from numbers(below)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value
