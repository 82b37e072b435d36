"""From an accepted path to SGLang's state: tokens of the requests, KV slots, the request's row, lengths."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from ..core.commit import keep
from .release import update_finished
from .steps import Followed


def commit(batch: Any, followed: Followed, tokens: list[list[int]]) -> list[int]:
    """Give every request its tokens and keep the cache of what it took; the drafted tokens that each request took.

    tokens: per request what the target says at each accepted node, root first, at least one. A request that ends inside
    its path (length, stop, abort) keeps the nodes before its end.
    """
    counts = [append(req, new) for req, new in zip(batch.reqs, tokens, strict=True)]
    kept = followed.kept
    if counts != [len(new) for new in tokens]:
        cut = torch.tensor(counts).to(kept.counts.device, non_blocking=True)
        kept = keep(followed.nodes, cut, batch.out_cache_loc.view(len(counts), -1), batch.seq_lens)
    total = sum(counts)
    batch.token_to_kv_pool_allocator.free(kept.slots[total:])
    # cloned: a replayed step writes to the same place again, and the batch outlives the round
    batch.out_cache_loc = kept.slots[:total].clone()
    _advance(batch, counts, kept.seq_lens)
    return [count - 1 for count in counts]


def append(req: Any, tokens: list[int]) -> int:
    """Append until the request ends; the number of tokens it took, at least 1."""
    taken = 0
    for token in tokens:
        req.output_ids.append(token)
        taken += 1
        if update_finished(req):
            break
    req.spec_verify_ct += 1
    req.spec_num_correct_drafts += taken - 1
    req.update_spec_correct_drafts_histogram(taken - 1)
    return taken


def _advance(batch: Any, counts: list[int], seq_lens: torch.Tensor) -> None:
    """The requests' rows name the kept slots in path order; lengths grow by what was kept."""
    for req, count in zip(batch.reqs, counts, strict=True):
        req.kv_committed_len += count
        req.kv_allocated_len = req.kv_committed_len
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        seq_lens,
        batch.out_cache_loc,
        len(counts),
    )
    batch.seq_lens.copy_(seq_lens)
    batch.seq_lens_cpu.add_(torch.tensor(counts, dtype=batch.seq_lens_cpu.dtype))
    batch.seq_lens_sum += sum(counts)
