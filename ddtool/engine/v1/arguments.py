"""What DDTREE does to SGLang's arguments: derives both widths, and refuses what cannot work, naming the fix."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..flags import TreeFlags

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

DEFAULT_TOPK = 8
DEFAULT_BUDGET_BLOCKS = 4
MAX_RUNNING_REQUESTS = 48  # SGLang's own default for DFLASH


@dataclass(frozen=True)
class TreeShape:
    """Numbers of one server: block B of the drafter, budget nodes, topk candidates for each of `depth` positions."""

    block: int
    budget: int
    topk: int
    chain_seed: bool

    @property
    def width(self) -> int:
        """Tokens per request in a verify forward, W: the root and its nodes."""
        return self.budget + 1

    @property
    def depth(self) -> int:
        """Positions drafted, L."""
        return self.block - 1


def apply(server_args: ServerArgs) -> None:
    """SGLang's validator hook: runs in `ServerArgs.__post_init__`, after the attention backend is resolved.

    Raises ValueError on a setting under which a tree would be verified wrongly or not at all.
    """
    _refuse_unsupported(server_args)
    shape = _resolve_shape(server_args)
    server_args.ddtree_shape = shape
    server_args.speculative_num_draft_tokens = shape.width
    # EAGLE's numbers: they size generic buffers, and anything but 1 turns on its own tree code
    server_args.speculative_num_steps = 1
    server_args.speculative_eagle_topk = 1
    server_args.page_size = 1
    server_args.disable_overlap_schedule = True
    if server_args.max_running_requests is None:
        server_args.max_running_requests = MAX_RUNNING_REQUESTS
        logger.warning(
            "DDTREE: --max-running-requests is not set, using %d as DFLASH does.", MAX_RUNNING_REQUESTS
        )


def shape_of(server_args: ServerArgs) -> TreeShape:
    """What `apply` resolved; it travels with the arguments into every scheduler process."""
    shape: TreeShape | None = getattr(server_args, "ddtree_shape", None)
    if shape is None:
        raise RuntimeError("DDTREE's arguments were not validated: SGLang's validator hook did not run.")
    return shape


def _refuse_unsupported(args: Any) -> None:
    prefill, decode = args.get_attention_backends()
    refusals = [
        (
            args.speculative_draft_model_path is None,
            "there is no drafter",
            "pass --speculative-draft-model-path with a DFlash drafter",
        ),
        (
            {prefill, decode} != {"triton"},
            f"attention backends {prefill} (prefill) and {decode} (decode), and all but triton ignore a tree's mask",
            "pass --attention-backend triton, and no other backend for prefill or decode",
        ),
        (
            args.page_size not in (None, 1),
            f"page size {args.page_size}: an accepted path is not contiguous",
            "pass --page-size 1",
        ),
        (args.enable_dp_attention, "data-parallel attention is not supported", "drop --enable-dp-attention"),
        (
            args.pp_size != 1,
            "pipeline parallelism is not supported",
            "pass --pp-size 1 and a larger --tp-size",
        ),
        (
            getattr(args, "attn_cp_size", 1) != 1,
            "context parallelism is not supported",
            "drop --attn-cp-size",
        ),
        (
            args.tokenizer_worker_num > 1,
            "additional HTTP workers do not load plugins and would not know the name DDTREE",
            "pass --tokenizer-worker-num 1",
        ),
        (args.enable_mixed_chunk, "prefill and verify cannot share a batch", "drop --enable-mixed-chunk"),
        (
            args.disaggregation_mode != "null",
            "prefill and decode on different servers are not supported",
            "drop --disaggregation-mode",
        ),
        (
            bool(args.enable_lora or args.lora_paths),
            "LoRA is not supported",
            "drop --enable-lora and --lora-paths",
        ),
        (
            args.enable_two_batch_overlap,
            "two-batch overlap splits a tree",
            "drop --enable-two-batch-overlap",
        ),
        (args.enable_pdmux, "multiplexed prefill is not supported", "drop --enable-pdmux"),
        (
            args.enable_deterministic_inference,
            "sampling seeds of single requests are not supported",
            "drop --enable-deterministic-inference",
        ),
        (
            args.enable_custom_logit_processor,
            "a custom logit processor would have to know each node's ancestors",
            "drop --enable-custom-logit-processor",
        ),
        (
            args.enable_return_hidden_states,
            "hidden states cannot be returned: they are the drafter's input",
            "drop --enable-return-hidden-states",
        ),
    ]
    for refused, why, fix in refusals:
        if refused:
            raise ValueError(f"DDTREE cannot run like this: {why}. To fix it: {fix}.")


def _resolve_shape(args: Any) -> TreeShape:
    flags = TreeFlags.from_environment()
    block = _block_size(args)
    given_width = args.speculative_num_draft_tokens
    budget = flags.budget
    if budget is None:
        budget = given_width - 1 if given_width is not None else DEFAULT_BUDGET_BLOCKS * block
    topk = flags.topk if flags.topk is not None else DEFAULT_TOPK
    if given_width is not None and given_width != budget + 1:
        raise ValueError(
            f"--speculative-num-draft-tokens {given_width} contradicts --speculative-ddtree-budget {budget}: the "
            f"target verifies budget + 1 tokens. To fix it: drop --speculative-num-draft-tokens."
        )
    if budget + 1 < block:
        raise ValueError(
            f"--speculative-ddtree-budget {budget} makes the verify width {budget + 1} narrower than the drafter's "
            f"block of {block}. To fix it: pass a budget of at least {block - 1}."
        )
    if topk < 1:
        raise ValueError("--speculative-ddtree-topk must be at least 1.")
    capacity = sum(topk**depth for depth in range(1, block))
    if budget > capacity:
        raise ValueError(
            f"--speculative-ddtree-budget {budget} exceeds the {capacity} nodes that top-k {topk} over {block - 1} "
            f"positions has. To fix it: raise --speculative-ddtree-topk or lower the budget."
        )
    window = args.speculative_draft_window_size
    if window is not None and int(window) < block:
        raise ValueError(
            f"--speculative-draft-window-size {window} is smaller than the drafter's block of {block}. "
            f"To fix it: pass at least {block}."
        )
    return TreeShape(block=block, budget=budget, topk=topk, chain_seed=bool(flags.chain_seed))


def _block_size(args: Any) -> int:
    """B: the flag, else the drafter's own config. A guess would silently change how the drafter works."""
    if args.speculative_dflash_block_size is not None:
        block = int(args.speculative_dflash_block_size)
    else:
        from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
        from sglang.srt.utils.hf_transformers_utils import get_config

        config = get_config(
            args.speculative_draft_model_path,
            trust_remote_code=args.trust_remote_code,
            revision=args.speculative_draft_model_revision,
            model_override_args=json.loads(args.json_model_override_args),
        )
        found = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
        if found is None:
            raise ValueError(
                f"the drafter's config in {args.speculative_draft_model_path} names no block_size. "
                "To fix it: pass --speculative-dflash-block-size as it was trained."
            )
        block = int(found)
    if block < 2:
        raise ValueError(f"a drafter's block of {block} drafts nothing: it must be at least 2.")
    return block
