"""graph-copy's cases on a fork: whatever its order and names are, the field that is missing has to be named."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import graph_copy
import torch
from graph_copy import BLOCK, FILE


def case(**changes: Any) -> Any:
    def run(modules: dict[str, ModuleType]) -> list[int]:
        target = graph_copy.buffers(modules[FILE])
        given = graph_copy.batch(**{"ddtree_depths": torch.arange(BLOCK), **changes})
        graph_copy.Runner(draft=True).replay_prepare(target, given)
        return list(target.positions.tolist()[:BLOCK])

    return run


CASES = {
    "healthy": case(),
    "positions": case(positions=None),
    "input_ids": case(input_ids=None),
    "extra": case(ddtree_depths=None),
    "wide": case(positions=torch.arange(33)),
}
EVENTS: dict[str, list[str]] = {}
