"""A profile with the host's own figures in place of what it assumes. Pure."""

from __future__ import annotations

from typing import Any

from ddtool.profile import Card, Profile

GIB = 2**30


def on_host(profile: Profile, facts: dict[str, Any]) -> Profile:
    """The profile with shapes and card as this host has them, for validation that no longer assumes."""
    target, drafter = facts["model"], facts["drafter"] or {}
    if target["config"]:
        gib = {"target_gib": target["bytes"] / GIB, "draft_gib": drafter.get("bytes", 0) / GIB}
        profile = profile.with_model_config(target["config"], drafter.get("config"), **gib)
    assumed, cards = profile.parallel.card, facts["gpus"]
    if assumed and cards:
        memory = min(card["memory_total_mib"] for card in cards) / 1024
        profile = profile.with_card(Card(name=cards[0]["name"], memory_gib=memory, sms=assumed.sms))
    return profile
