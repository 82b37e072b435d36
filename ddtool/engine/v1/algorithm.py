"""DDTREE as SGLang sees it: an object that answers what the members of `SpeculativeAlgorithm` answer.

Where SGLang branches, a tree wants what DFLASH gets: hidden states captured from the target's layers, the drafter's
share of the KV pool, graphs for both workers. The width of a graph is read from each worker's own arguments.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo


class DDTreeAlgorithm(CustomSpecAlgo):  # type: ignore[misc]  # SGLang has no stubs
    def __repr__(self) -> str:
        return f"DDTreeAlgorithm({self.name!r})"

    def is_dflash(self) -> bool:
        return True

    def is_frozen_kv_mtp(self) -> bool:  # a hole in 0.5.12.post1's base class
        return False

    def supports_target_verify_for_draft(
        self,
    ) -> bool:  # 0.5.13: the drafter, too, runs in TARGET_VERIFY mode
        return True

    def create_future_map(
        self, device: Any, req_to_token_pool: Any, needs_cpu_seq_lens: bool = True
    ) -> Any:  # 0.5.13 calls it unconditionally; its base class does not have it
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens)
