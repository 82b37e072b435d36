"""Times a round's steps where they run, without making the host wait for the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Stopwatch:
    """On a GPU: events, read by `seconds` after the round's copy to the host has waited for them anyway."""

    def __init__(self, device: torch.device | str, *, enabled: bool) -> None:
        self._enabled = enabled
        self._on_gpu = torch.device(device).type == "cuda"
        self._marks: dict[str, tuple[Any, Any]] = {}

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        if not self._enabled:
            yield
            return
        start = self._now()
        yield
        self._marks[step] = (start, self._now())

    def seconds(self) -> dict[str, float]:
        """Duration by step."""
        if self._on_gpu:
            for _, end in self._marks.values():
                end.synchronize()
            return {step: start.elapsed_time(end) / 1000 for step, (start, end) in self._marks.items()}
        return {step: end - start for step, (start, end) in self._marks.items()}

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
