"""Arms: one profile with nothing but its `speculative` section changed, so that they can be compared. Pure.

plain               no speculation: what the same server does without a drafter
chain               DFLASH, the drafter's own chain: the honest baseline of a tree
tree:BUDGET[:TOPK]  DDTREE
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from ddtool.errors import UsageError
from ddtool.profile import Profile
from ddtool.profile.schema import Speculative

TOPK = 8  # where neither the arm nor the profile says it
FORM = re.compile(r"plain|chain|tree:([1-9][0-9]{0,4})(?::([1-9][0-9]{0,3}))?")
OVERLAP_OFF = "disable-overlap-schedule"
HINT = "--arms plain,chain,tree:16,tree:32 (tree:BUDGET or tree:BUDGET:TOPK)"


@dataclass(frozen=True)
class Arm:
    """`name` as typed, and what it runs. `budget` and `topk` are a tree's alone; `env`: added to the profile's."""

    name: str
    algorithm: Literal["NONE", "DFLASH", "DDTREE"]
    budget: int | None = None
    topk: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def parse(text: str, profile: Profile) -> Arm:
    """Raises UsageError for anything but `plain`, `chain`, `tree:BUDGET[:TOPK]`."""
    match = FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"not an arm: {text!r}", hint=HINT)
    if text == "plain":
        return Arm(text, "NONE")
    if text == "chain":
        return Arm(text, "DFLASH")
    topk = int(match[2]) if match[2] else profile.speculative.topk or TOPK
    return Arm(text, "DDTREE", int(match[1]), topk)


def parse_all(text: str | None, profile: Profile) -> list[Arm]:
    """The arms of `--arms`, comma-separated; without it plain, chain, and the profile's own if it is a tree."""
    names = default_names(profile) if text is None else [part.strip() for part in text.split(",")]
    found = [parse(name, profile) for name in names]
    shapes = [(arm.algorithm, arm.budget, arm.topk) for arm in found]
    if len(set(shapes)) != len(shapes):
        raise UsageError(f"--arms {text}: two of them are the same", hint=HINT)
    return found


def default_names(profile: Profile) -> list[str]:
    if profile.drafter is None:
        return ["plain"]
    own = own_name(profile)
    return ["plain", "chain", *([own] if own not in ("plain", "chain") else [])]


def own_name(profile: Profile) -> str:
    """The arm that the profile itself is."""
    spec = profile.speculative
    if spec.algorithm == "DDTREE":
        return f"tree:{spec.budget}"
    return {"NONE": "plain", "DFLASH": "chain"}[spec.algorithm]


def is_own(arm: Arm, profile: Profile) -> bool:
    """Whether the arm runs exactly what the profile says."""
    spec = profile.speculative
    return not arm.env and (arm.algorithm, arm.budget, arm.topk) == (spec.algorithm, spec.budget, spec.topk)


def profile_of(arm: Arm, profile: Profile) -> Profile:
    """The profile that the arm's server runs. Raises UsageError for an arm that this profile cannot have."""
    if is_own(arm, profile):
        return profile
    if arm.algorithm != "NONE" and profile.drafter is None:
        raise UsageError(
            f"{arm.name} needs a drafter, and the profile {profile.name} has none", hint="--arms plain"
        )
    if arm.algorithm == "DDTREE" and profile.fork_flags:
        raise UsageError(
            f"{arm.name}: the tree's shape is the business of your fork's own flags",
            why="provider is builtin, so ddtool knows only the tree that the profile's server_args ask for",
            hint=f"--arms plain,chain,{own_name(profile)}, and --set server_args.… for another shape",
        )
    # Stock SGLang answers chain and plain decoding: the baseline is what one has without ddtool's engine. The
    # engine answers trees; a profile that runs a chain has no provider for them.
    provider = profile.engine.provider if profile.speculative.algorithm == "DDTREE" else "plugin"
    update: dict[str, Any] = {
        "speculative": speculative(arm, profile),
        "engine": profile.engine.model_copy(
            update={"provider": provider if arm.algorithm == "DDTREE" else "builtin"}
        ),
        "server_args": {
            name: value for name, value in profile.server_args.items() if name not in left_out(arm, profile)
        },
        "drafter": None if arm.algorithm == "NONE" else profile.drafter,
        "env": {**profile.env, **arm.env},
        # The floor is meant for the profile's own algorithm, and no gate runs here.
        "health": profile.health.model_copy(update={"accept_length_floor": None}),
    }
    return profile.model_copy(update=update)


def speculative(arm: Arm, profile: Profile) -> Speculative:
    if arm.algorithm == "NONE":
        return Speculative()
    block = block_of(profile)
    try:
        return Speculative(algorithm=arm.algorithm, block_size=block, budget=arm.budget, topk=arm.topk)
    except ValidationError as error:
        raise UsageError(
            f"{arm.name}: {error.errors()[0]['msg']}",
            hint="--set speculative.block_size=8, as the drafter has it",
        ) from None


def block_of(profile: Profile) -> int | None:
    """Tokens of the drafter's block, the known one included, as far as profile and checkpoint say."""
    shape = profile.drafter.shape if profile.drafter else None
    return profile.speculative.block_size or (shape.block_size if shape else None)


def left_out(arm: Arm, profile: Profile) -> list[str]:
    """Flags of the profile that the arm cannot take: plain decoding those of speculation, a chain a tree's."""
    if arm.algorithm == "NONE":
        return [name for name in profile.server_args if name.startswith("speculative-")]
    if arm.algorithm == "DFLASH":
        return [
            name
            for name in profile.server_args
            if "ddtree" in name or (profile.fork_flags and name == "speculative-num-draft-tokens")
        ]
    return []


def forced_differences(arms: Sequence[Arm], profile: Profile) -> list[str]:
    """What is not equal between the arms and cannot be made so, or was not: one sentence each."""
    found = []
    for arm in arms:
        names = left_out(arm, profile) if not is_own(arm, profile) else []
        if names:
            flags = ", ".join(f"--{name}" for name in names)
            found.append(f"{arm.name} runs without {flags}: it has no use for it")
    kinds = {arm.algorithm for arm in arms}
    if "NONE" in kinds and len(kinds) > 1 and not profile.flag(OVERLAP_OFF):
        found.append(
            "SGLang switches its overlap scheduler off under speculation, so only plain has it: "
            f"--set server_args.{OVERLAP_OFF}=true takes it from plain, too"
        )
    return found
