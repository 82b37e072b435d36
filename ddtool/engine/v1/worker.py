"""The DDTREE worker: SGLang's DFLASH worker, whose chain is replaced by a tree.

A round drafts a block, grows a tree from it, lets the target look at all nodes in one forward, walks down the tree
along the target's own tokens, and keeps what lies on that path.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import sglang
import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.dflash_info import DFlashDraftInput, DFlashVerifyInput
from sglang.srt.speculative.dflash_worker import DFlashWorker

from .. import engine_id
from ..metrics import RoundMetrics
from ..switches import Switches
from .arguments import shape_of
from .arrival import Arrival
from .choosing import Chooser
from .commit import commit
from .context import DraftContext
from .drafting import BlockDrafter
from .head import ShardedTopK
from .mask import MaskBuffer
from .observers import Round, observers
from .release import forwardable
from .steps import Grown, TreeSteps
from .stopwatch import Stopwatch

logger = logging.getLogger(__name__)


class DDTreeWorker(DFlashWorker):  # type: ignore[misc]  # SGLang has no stubs
    """Prefill, the drafter's model and its KV cache are the base class's; rounds of decoding are ours.

    Two widths: everything of the draft worker is built from arguments that say B (the block) tokens, everything of the
    target from those that say W = budget + 1.
    """

    def __init__(self, server_args: Any, **kwargs: Any) -> None:
        self.tree_shape = shape = shape_of(server_args)
        draft_args = copy.copy(server_args)
        draft_args.speculative_num_draft_tokens = shape.block
        super().__init__(draft_args, **kwargs)
        self.server_args = server_args
        _require_triton(self.model_runner)
        target = self.model_runner.model
        self._drafter = BlockDrafter(
            self.draft_model_runner,
            target.get_input_embeddings(),
            shape.block,
            self._mask_token_id,
            self.draft_window_size,
        )
        head = ShardedTopK(getattr(target, "lm_head", None), shape.topk, get_tp_group())
        graphs = getattr(self.model_runner, "graph_runner", None) if torch.cuda.is_available() else None
        graph_mask = self.model_runner.attn_backend.cuda_graph_custom_mask if graphs else None
        self._mask = MaskBuffer(shape.width, self.device, graph_mask)
        self._context = DraftContext(self)
        switches = Switches.from_environment()
        self._steps = TreeSteps(
            shape,
            head,
            self._mask,
            self._context,
            graphs_up_to=graphs.max_bs if graphs else 0,
            every_token=switches.every_token,
        )
        self._gained = Arrival(server_args.max_running_requests, shape.depth + 2, self.device)
        self._choose = Chooser(shape.width, server_args.random_seed, self.device)
        self._metrics = self._make_metrics()
        self._observers = observers(switches, self, get_tp_group())
        if self.tp_rank == 0:
            logger.info(
                "DDTREE ready: ddtool engine %s on SGLang %s, draft width %d, verify width %d (budget %d), top-k %d, "
                "depth %d, chain seed %s",
                engine_id(),
                sglang.__version__,
                shape.block,
                shape.width,
                shape.budget,
                shape.topk,
                shape.depth,
                "on" if shape.chain_seed else "off",
            )

    def forward_batch_generation(self, batch: Any, **kwargs: Any) -> GenerationBatchResult:
        if not isinstance(batch.spec_info, DFlashDraftInput) or batch.forward_mode.is_extend():
            return super().forward_batch_generation(batch, **kwargs)
        return self._round(batch, **kwargs)

    def _round(self, batch: Any, **kwargs: Any) -> GenerationBatchResult:
        """One round for every request of `batch`."""
        draft_input = batch.spec_info
        positions = batch.seq_lens_cpu.tolist()
        watch = Stopwatch(self.device, enabled=self._metrics is not None)

        with watch.measure("draft"):
            hidden = self._drafter(batch, draft_input)
        mask = self._mask.reserve(positions)
        with watch.measure("grow"):
            grown = self._steps.grow(hidden, draft_input.bonus_tokens, batch.seq_lens)
        with watch.measure("verify"):
            result = self._verify(batch, grown, mask, **kwargs)
        logits_output = result.logits_output
        with watch.measure("choose"):
            choice = self._choose(logits_output.next_token_logits, batch.sampling_info)
        with watch.measure("follow"):
            slots = batch.out_cache_loc.view(choice.shape)
            followed = self._steps.follow(grown, choice, slots, batch.seq_lens)
        self._gained.start(followed.gained)
        # At once, so that what enters the radix cache has the drafter's keys and values too
        self._steps.absorb(logits_output.hidden_states, followed)
        logits_output.hidden_states = None
        gained = self._gained.wait()  # the round's one wait for the device
        accepted = commit(batch, followed, [row[: row[-1] + 1] for row in gained])

        # cloned: a replayed step writes to the same place again, and the batch outlives the round
        draft_input.bonus_tokens = followed.bonus.clone()
        self._context.advance(batch, draft_input)
        batch.spec_info = draft_input
        batch.forward_mode = ForwardMode.DECODE

        if self._metrics is not None:
            self._metrics.observe(accepted, watch.seconds())
        for observe in self._observers:
            observe(Round(batch, positions, grown, choice, followed.nodes, accepted))
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=draft_input.bonus_tokens,
            num_correct_drafts=sum(accepted),
            num_correct_drafts_per_req_cpu=accepted,
            can_run_cuda_graph=result.can_run_cuda_graph,
        )

    def _verify(self, batch: Any, grown: Grown, mask: torch.Tensor, **kwargs: Any) -> GenerationBatchResult:
        """The target's forward over all nodes: logits and captured hidden states for each of them."""
        verify_input = DFlashVerifyInput(
            draft_token=grown.trees.tokens.flatten(),
            positions=grown.positions.flatten(),
            draft_token_num=self.tree_shape.width,
        )
        verify_input.prepare_for_verify(batch, page_size=1, build_custom_mask=False)  # slots only
        verify_input.custom_mask = mask
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.spec_info = verify_input
        batch.return_hidden_states = False
        return self.target_worker.forward_batch_generation(forwardable(batch), is_verify=True, **kwargs)

    def _make_metrics(self) -> RoundMetrics | None:
        if not self.server_args.enable_metrics or self.tp_rank != 0:
            return None
        labels = {
            "model_name": self.server_args.served_model_name,
            **(self.server_args.extra_metric_labels or {}),
        }
        return RoundMetrics(self.tree_shape.depth, labels)


def _require_triton(model_runner: Any) -> None:
    """The arguments were checked; this checks what was built from them. Others would verify a chain, silently."""
    backend = type(model_runner.attn_backend).__name__
    if backend != "TritonAttnBackend":
        raise RuntimeError(
            f"DDTREE needs the target's attention backend to apply a tree mask, but {backend} was built. "
            "To fix it: pass --attention-backend triton and no other backend."
        )
