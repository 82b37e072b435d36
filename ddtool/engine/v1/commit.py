"""From an accepted path to SGLang's state: tokens of the requests, KV slots, the request's row, hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from .release import update_finished


@dataclass(frozen=True)
class Committed:
    """counts: verify-input tokens now in the KV cache per request (root included), [bs] int32 on the device.

    bonus_tokens: each request's newest token, not in the cache yet, [bs] int64. hidden: the committed tokens'
    captured states in path order, [sum(counts), F]. accepted: drafted tokens that each request took.
    """

    bonus_tokens: torch.Tensor
    counts: torch.Tensor
    hidden: torch.Tensor
    accepted: list[int]


def commit(
    batch: Any, hidden: torch.Tensor, width: int, paths: list[list[int]], tokens: list[list[int]]
) -> Committed:
    """Give every request its tokens and keep the cache of what it took.

    hidden: [bs × W, F] of the verify forward. paths: per request the accepted nodes, root first. tokens: what the
    target says at each of them. A request that ends inside its path (length, stop, abort) keeps the nodes before.
    """
    kept = [
        path[: _append(req, new)] for req, path, new in zip(batch.reqs, paths, tokens, strict=True)
    ]
    counts = [len(nodes) for nodes in kept]
    keep = [row * width + node for row, nodes in enumerate(kept) for node in nodes]
    free = sorted(set(range(len(kept) * width)) - set(keep))
    newest = [req.output_ids[-1] for req in batch.reqs]

    sections = [keep, free, counts, newest]
    moved = torch.tensor([number for section in sections for number in section], dtype=torch.int64)
    on_device = moved.to(hidden.device, non_blocking=True)
    keep_t, free_t, counts_t, newest_t = on_device.split([len(section) for section in sections])

    slots = batch.out_cache_loc
    batch.token_to_kv_pool_allocator.free(slots[free_t])
    batch.out_cache_loc = slots[keep_t]
    _advance(batch, counts, counts_t)
    return Committed(
        bonus_tokens=newest_t,
        counts=counts_t.to(torch.int32),
        hidden=hidden.index_select(0, keep_t),
        accepted=[count - 1 for count in counts],
    )


def _append(req: Any, tokens: list[int]) -> int:
    """Append until the request ends; the number of tokens it took, at least 1."""
    for taken, token in enumerate(tokens, start=1):
        req.output_ids.append(token)
        if update_finished(req):
            break
    req.spec_verify_ct += 1
    req.spec_num_correct_drafts += taken - 1
    req.update_spec_correct_drafts_histogram(taken - 1)
    return taken


def _advance(batch: Any, counts: list[int], counts_t: torch.Tensor) -> None:
    """The requests' rows name the kept slots in path order; lengths grow by what was kept."""
    for req, count in zip(batch.reqs, counts, strict=True):
        req.kv_committed_len += count
        req.kv_allocated_len = req.kv_committed_len
    grown = batch.seq_lens + counts_t.to(batch.seq_lens.dtype)
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        grown,
        batch.out_cache_loc,
        len(counts),
    )
    batch.seq_lens.copy_(grown)
    batch.seq_lens_cpu.add_(torch.tensor(counts, dtype=batch.seq_lens_cpu.dtype))
    batch.seq_lens_sum += sum(counts)
