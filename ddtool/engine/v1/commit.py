"""From an accepted path to SGLang's state: tokens of the requests, KV slots, the request's row, hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

from ..core.commit import CommitPlan, plan_commit
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


def commit(batch: Any, hidden: torch.Tensor, nodes: torch.Tensor, tokens: list[list[int]]) -> Committed:
    """Give every request its tokens and keep the cache of what it took.

    hidden: [bs * W, F] of the verify forward. nodes: [bs, L + 1], the accepted paths. tokens: per request what the
    target says at each accepted node, root first, at least one. A request that ends inside its path (length, stop,
    abort) keeps the nodes before its end.
    """
    counts = [append(req, new) for req, new in zip(batch.reqs, tokens, strict=True)]
    newest = [req.output_ids[-1] for req in batch.reqs]
    counts_t, newest_t = torch.tensor([counts, newest]).to(hidden.device, non_blocking=True)
    slots = batch.out_cache_loc.view(len(counts), -1)
    plan = plan_commit(nodes, counts_t, sum(counts), slots, batch.seq_lens)
    batch.token_to_kv_pool_allocator.free(plan.freed)
    batch.out_cache_loc = plan.kept
    _advance(batch, counts, plan)
    return Committed(
        bonus_tokens=newest_t,
        counts=counts_t.to(torch.int32),
        hidden=hidden.index_select(0, plan.rows),
        accepted=[count - 1 for count in counts],
    )


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


def _advance(batch: Any, counts: list[int], plan: CommitPlan) -> None:
    """The requests' rows name the kept slots in path order; lengths grow by what was kept."""
    for req, count in zip(batch.reqs, counts, strict=True):
        req.kv_committed_len += count
        req.kv_allocated_len = req.kv_committed_len
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        plan.seq_lens,
        plan.kept,
        len(counts),
    )
    batch.seq_lens.copy_(plan.seq_lens)
    batch.seq_lens_cpu.add_(torch.tensor(counts, dtype=batch.seq_lens_cpu.dtype))
    batch.seq_lens_sum += sum(counts)
