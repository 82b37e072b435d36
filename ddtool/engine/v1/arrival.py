"""A round's one copy to the host, during which the device goes on working."""

from __future__ import annotations

import torch


class Arrival:
    """`start` copies a tensor of int64 rows, `wait` returns it as lists. On a CPU there is nothing to wait for."""

    def __init__(self, rows: int, columns: int, device: torch.device | str) -> None:
        self._event = torch.cuda.Event() if torch.device(device).type == "cuda" else None
        self._memory = torch.empty((rows, columns), dtype=torch.int64, pin_memory=self._event is not None)
        self._arriving = self._memory[:0]

    def start(self, result: torch.Tensor) -> None:
        self._arriving = self._memory[: len(result)]
        self._arriving.copy_(result, non_blocking=True)
        if self._event is not None:
            self._event.record()

    def wait(self) -> list[list[int]]:
        if self._event is not None:
            self._event.synchronize()
        rows: list[list[int]] = self._arriving.tolist()
        return rows
