"""Before a graph is replayed, the batch's width is compared with the width it was captured for.

SGLang slices its buffers by the captured width and copies the batch's tensors into them: a mismatch ends the server
with `The size of tensor a (8) must match the size of tensor b (33)`. Here it costs one log line and graph speed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .. import NAME

logger = logging.getLogger(__name__)

_reported: set[tuple[bool, int, int]] = set()


def can_run(original: Callable[..., bool], runner: Any, forward_batch: Any) -> bool:
    """Around `CudaGraphRunner.can_run`; False makes SGLang run the batch without a graph."""
    model_runner = runner.model_runner
    if model_runner.server_args.speculative_algorithm == NAME:
        tokens = forward_batch.input_ids.numel()
        if tokens != forward_batch.batch_size * runner.num_tokens_per_bs:
            _report(model_runner.is_draft_worker, runner.num_tokens_per_bs, tokens, forward_batch.batch_size)
            return False
        if not _mask_fits(forward_batch.spec_info, model_runner.attn_backend):
            return False
    return original(runner, forward_batch)


def _mask_fits(spec_info: Any, backend: Any) -> bool:
    """The graphs' mask has room for every context up to the limit, but not for the tree beyond it."""
    mask = getattr(spec_info, "custom_mask", None)
    return mask is None or bool(mask.numel() <= backend.cuda_graph_custom_mask.numel())


def _report(draft: bool, captured: int, tokens: int, requests: int) -> None:
    width = tokens // max(requests, 1)
    if (draft, captured, width) in _reported:
        return
    _reported.add((draft, captured, width))
    logger.error(
        "DDTREE: the %s worker's CUDA graphs were captured for %d tokens a request, this batch has %d (%d for %d "
        "requests). It runs without graphs, slowly. The drafter's width is its block, the target's is budget + 1; "
        "restart with one --speculative-ddtree-budget.",
        "draft" if draft else "target",
        captured,
        width,
        tokens,
        requests,
    )
