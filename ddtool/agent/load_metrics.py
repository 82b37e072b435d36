"""What a server counted during a pass: differences of the counters that it exports on /metrics."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from . import client

PREFIXES = ("sglang:", "sglang_", "ddtree_")
COUNTED = ("_total", "_sum", "_count")  # counters, and of histograms what a mean needs
MOST_SERIES = 300
TIMEOUT_S = 20.0
_SERIES = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = Tuple[str, Tuple[Tuple[str, str], ...]]


def read(spec: Dict[str, Any]) -> Optional[Dict[Series, float]]:
    """The counters now; None when the server exports none. `spec`: address, port, api_key."""
    try:
        answer = client.request(
            spec["address"], spec["port"], "/metrics", api_key=spec.get("api_key"), timeout=TIMEOUT_S
        )
    except OSError:
        return None
    return parse(answer.body) if answer.status == 200 and isinstance(answer.body, str) else None


def parse(text: str) -> Dict[Series, float]:
    found = {}
    for line in text.splitlines():
        match = _SERIES.match(line) if line.startswith(PREFIXES) else None
        if match and match.group(1).endswith(COUNTED):
            labels = tuple(sorted(_LABEL.findall(match.group(2) or "")))
            try:
                found[match.group(1), labels] = float(match.group(3))
            except ValueError:
                continue
    return found


def difference(
    before: Optional[Dict[Series, float]], after: Optional[Dict[Series, float]]
) -> Optional[Dict[str, float]]:
    """What grew, by name; a name with several series has those labels that tell them apart: `name{depth="3"}`."""
    if before is None or after is None:
        return None
    grown = {series: value - before.get(series, 0.0) for series, value in after.items()}
    telling = _telling(list(after))
    named = {
        _name(name, labels, telling[name]): round(value, 6)
        for (name, labels), value in sorted(grown.items())
        if value > 0
    }
    return dict(list(named.items())[:MOST_SERIES])


def _telling(series: List[Series]) -> Dict[str, List[str]]:
    """Of each name, the labels that have more than one value."""
    values: Dict[str, Dict[str, set[str]]] = {}
    for name, labels in series:
        of_name = values.setdefault(name, {})
        for label, value in labels:
            of_name.setdefault(label, set()).add(value)
    return {
        name: [label for label, seen in of_name.items() if len(seen) > 1] for name, of_name in values.items()
    }


def _name(name: str, labels: Tuple[Tuple[str, str], ...], telling: List[str]) -> str:
    said = ",".join(f'{label}="{value}"' for label, value in labels if label in telling)
    return f"{name}{{{said}}}" if said else name
