"""Why a service is as it is, in one sentence, and what to type next. Pure.

The first reason that applies is told; without any, the first remark about a service that works. The other remarks come
beside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddtool.deploy.look import Look, Situation
from ddtool.deploy.reasons import REASONS
from ddtool.deploy.remarks import REMARKS


@dataclass(frozen=True)
class Explanation:
    """`reason`: the situation's code. `facts`: what it rests on. `also`: `{reason, sentence, next_command}` each."""

    reason: str
    sentence: str
    next_command: str
    facts: dict[str, Any]
    also: list[dict[str, str]]


def explain(look: Look) -> Explanation:
    first = next(item for item in (*REASONS, *REMARKS, FINE) if item.applies(look))
    remarks = [item for item in REMARKS if look.release and item is not first and item.applies(look)]
    return Explanation(
        **told(first, look),
        facts={name: look.found[name] for name in first.facts},
        also=[told(item, look) for item in remarks],
    )


def told(item: Situation, look: Look) -> dict[str, str]:
    return {
        "reason": item.code,
        "sentence": item.sentence(look),
        "next_command": item.next_command(look),
    }


def in_order(look: Look) -> str:
    assert look.release
    return f"{look.unit} works: release {look.release['id']}, {look.health}, {look.requests}"


FINE = Situation(
    "fine",
    lambda look: True,
    in_order,
    lambda look: look.run("generate 'one two three'"),
    ("unit", "health", "requests"),
)
