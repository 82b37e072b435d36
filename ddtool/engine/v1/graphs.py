"""CUDA graphs of a step that is many tiny kernels: one for each batch size, all captured at start-up.

Captured at first use they would hold up a request, take memory that nobody counted, and fail where nobody looks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
GIB = 2**30


class Graphs(Generic[_T]):
    """`call` as graphs for batches of 1 to `largest` requests.

    inputs: static tensors of `largest` rows; a smaller batch uses their beginning, and `call` gets that. pool: shared
    by all steps of a round. Results stay in memory of their own, so all of a round's are valid until the next one.
    """

    def __init__(
        self, call: Callable[..., _T], inputs: tuple[torch.Tensor, ...], largest: int, pool: Any
    ) -> None:
        self._inputs = inputs
        self._captured: dict[int, tuple[Any, _T]] = {}
        for size in range(largest, 0, -1):  # the largest first, so that the others find room in its memory
            given = self.inputs(size)
            self._captured[size] = capture(lambda given=given: call(*given), pool)  # type: ignore[misc]

    def inputs(self, size: int) -> tuple[torch.Tensor, ...]:
        return tuple(static[:size] for static in self._inputs)

    def result(self, size: int) -> _T:
        """The tensors in which every replay for this size leaves its result."""
        return self._captured[size][1]

    def __call__(self, *given: torch.Tensor) -> _T:
        size = len(given[0])
        for static, tensor in zip(self.inputs(size), given, strict=True):
            static.copy_(tensor)
        return self.replay(size)

    def replay(self, size: int) -> _T:
        """With what the inputs hold already."""
        graph, result = self._captured[size]
        graph.replay()
        return result


def capture(call: Callable[[], _T], pool: Any) -> tuple[Any, _T]:
    """`call` as a graph that allocates in `pool`, and the tensors of its result."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        call()  # lets kernels load and libraries allocate, which a capture forbids
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # thread_local: other threads of the scheduler may use the device meanwhile
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = call()
    return graph, result


@contextmanager
def accounted(largest: int) -> Iterator[None]:
    """Says what captures cost, in the words in which SGLang does for its own."""
    free, start = torch.cuda.mem_get_info()[0], time.perf_counter()
    logger.info("Capture DDTREE graphs begin. bs 1 to %d. avail mem=%.2f GB", largest, free / GIB)
    yield
    left = torch.cuda.mem_get_info()[0]
    logger.info(
        "Capture DDTREE graphs end. Time elapsed: %.2f s. mem usage=%.2f GB. avail mem=%.2f GB.",
        time.perf_counter() - start,
        (free - left) / GIB,
        left / GIB,
    )
