"""What a tuning run measures: widths for the cost of a round, one trace for acceptance, then the answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.bench import arms as all_arms
from ddtool.bench.arms import Arm
from ddtool.bench.passes import Design, Pass, Visit
from ddtool.bench.tune.cost import Experts
from ddtool.errors import UsageError
from ddtool.profile import Profile

TRACE = "trace"  # the arm whose server writes one; it takes no part in any comparison
SWITCHES = "DDTOOL_ENGINE_TRACE"
STEPS = (
    8,
    12,
    16,
    20,
    24,
    33,
    48,
    65,
)  # a GPU's tiles are multiples of 8 and 16: both sides of some are among them
TOPK = all_arms.TOPK
METRICS = "enable-metrics"


def block_of(profile: Profile) -> int:
    """Tokens of the drafter's block, the known one included. Raises UsageError when nothing says it."""
    block = all_arms.block_of(profile)
    if block is None:
        raise UsageError(
            f"the profile {profile.name} has no drafter with a block size, and without one there is nothing to tune",
            hint="give drafter.path and speculative.block_size",
        )
    return block


def widths(typed: str | None, block: int) -> list[int]:
    """Of `--widths`, or eight from the block to 65. Raises UsageError for less than two, or one below the block."""
    if typed is None:
        found = {block, *(width for width in STEPS if width > block)}
    else:
        try:
            found = {int(word) for word in typed.split(",")}
        except ValueError:
            raise UsageError(
                f"--widths {typed}: numbers with commas between", hint="--widths 8,16,33,65"
            ) from None
    if len(found) < 2 or min(found) < block:
        raise UsageError(
            f"--widths {typed}: two widths or more, none below the block of {block}",
            why="a width is the tree's budget and the known token; a tree is no smaller than the chain",
            hint=f"--widths {block},16,33,65",
        )
    return sorted(found)


def arms(of_widths: Sequence[int]) -> list[str]:
    """The chain first: everything is compared with it."""
    return ["chain", *(f"tree:{width - 1}" for width in of_widths)]


def timed(profile: Profile) -> Profile:
    """With SGLang's metrics on, in all arms: without them a tree's server does not time the steps of a round."""
    return profile.model_copy(update={"server_args": {**profile.server_args, METRICS: True}})


def traced_arm(profile: Profile, path: str) -> Arm:
    """The cheapest tree, since what the drafter says does not depend on the budget. It writes to `path` on the host."""
    switches = {SWITCHES: f"verify-trace:{path},every-token"}
    return Arm(TRACE, "DDTREE", block_of(profile) - 1, max(TOPK, profile.speculative.topk or 0), switches)


def traced_visit(design: Design, workload: str) -> Visit:
    """One pass over the workload, in the load with the most prompts. Its speed is not measured, and each token of a
    warm-up would be a round of the trace, too.
    """
    cell = max(
        (cell for cell in design.cells if cell.workload == workload),
        key=lambda cell: (cell.prompts, cell.concurrency or 0),
    )
    return Visit(TRACE, 0, [Pass(TRACE, cell.key, 0, 0)], warm_up=False)


def workloads(workload: str, contexts: Sequence[int], tokens: int) -> list[str]:
    """As typed for `bench`: the one that is traced, and synthetic ones of other contexts, for their cost alone."""
    return [workload, *(f"synthetic:{context}:{tokens}" for context in contexts)]


def experts_of(config: Mapping[str, Any]) -> Experts | None:
    """Of a target's config.json; None for a dense one."""
    text = config.get("text_config") or config
    count = next(
        (text[key] for key in ("n_routed_experts", "num_experts", "num_local_experts") if text.get(key)), None
    )
    chosen = text.get("num_experts_per_tok")
    return Experts(int(count), int(chosen)) if count and chosen else None
