"""Verify passes whose logits are healthy, or not, through the model runner of the release."""

from __future__ import annotations

from types import ModuleType
from typing import Any
from unittest import mock

import runner
import torch

WIDTH, VOCAB, REQUESTS = 33, 64, 2
NAN, INF = float("nan"), float("inf")


def logits(bad: dict[tuple[int, int], float] | None = None) -> torch.Tensor:
    rows = REQUESTS * WIDTH
    made = torch.arange(rows * VOCAB, dtype=torch.float32).reshape(rows, VOCAB).bfloat16()
    for place, value in (bad or {}).items():
        made[place] = value
    return made


def passes(*tensors: object, mode: str = "verify", draft: bool = False) -> Any:
    def run(modules: dict[str, ModuleType]) -> None:
        for tensor in tensors:
            runner.forward(modules[runner.FILE], mode, tensor, draft=draft)

    return run


def both_workers(modules: dict[str, ModuleType]) -> None:
    for draft in (False, False, True):
        runner.forward(modules[runner.FILE], "verify", logits({(1, 1): NAN}), draft=draft)


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a GPU: what the guard does then, without one."""

    is_cuda = True


class Event:
    """Completes when the case says so, as a copy that is still under way does."""

    done = False

    def record(self) -> None: ...

    def query(self) -> bool:
        return Event.done


def deferred(*passes: tuple[bool, dict[tuple[int, int], float]]) -> Any:
    """Passes on a device: whether the copies of those before have arrived, and what is bad."""
    empty = torch.empty

    def pageable(shape: Any, dtype: Any, pin_memory: bool) -> torch.Tensor:
        return empty(shape, dtype=dtype)

    def run(modules: dict[str, ModuleType]) -> None:
        with mock.patch.object(torch, "empty", pageable), mock.patch.object(torch.cuda, "Event", Event):
            for arrived, bad in passes:
                Event.done = arrived
                runner.forward(modules[runner.FILE], "verify", logits(bad).as_subclass(OnDevice))

    return run


CASES = {
    "healthy": passes(logits(), logits()),
    "other_mode": passes(logits({(40, 5): NAN}), mode="extend"),
    "no_head": passes(None, draft=True),
    "nan": passes(logits(), logits({(40, 5): NAN, (41, 0): NAN})),
    "inf": passes(logits({(0, 63): INF, (7, 0): -INF})),
    "minus_inf": passes(logits({(65, 1): -INF})),
    "both_workers": both_workers,
    "under_way": deferred((False, {(34, 1): NAN}), (False, {})),
    "arrived": deferred((False, {(34, 1): NAN}), (False, {}), (True, {(0, 0): INF})),
    "blind": passes(torch.zeros(66, VOCAB, dtype=torch.complex64)),
}
EVENTS = {
    "healthy": [],
    "other_mode": [],
    "no_head": [],
    "nan": ["nonfinite"],
    "inf": ["nonfinite"],
    "minus_inf": ["nonfinite"],
    "both_workers": ["nonfinite", "nonfinite"],
    "under_way": [],
    "arrived": ["nonfinite"],
    "blind": ["blind"],
}
