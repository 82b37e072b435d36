"""What differs between 0.5.12.post1 and 0.5.13.post1 where the worker touches it."""

from __future__ import annotations

import dataclasses
from typing import Any

from sglang.srt.model_executor.forward_batch_info import ForwardBatch

_POOLS = ("req_to_token_pool", "token_to_kv_pool", "attn_backend")
_FORWARD_BATCH_FIELDS = {field.name for field in dataclasses.fields(ForwardBatch)}


def runner_fields(model_runner: Any) -> dict[str, Any]:
    """`ForwardBatch` arguments that a hand-built batch must carry: 0.5.13 reads them from the runner instead."""
    return {name: getattr(model_runner, name) for name in _POOLS if name in _FORWARD_BATCH_FIELDS}


def forwardable(batch: Any) -> Any:
    """What the target worker takes: 0.5.13 takes the schedule batch itself."""
    convert = getattr(batch, "get_model_worker_batch", None)
    return batch if convert is None else convert()


def update_finished(req: Any) -> bool:
    """Let SGLang look at the last token of `req` (length, stop tokens and strings, abort) and say if it ended."""
    check = getattr(req, "update_finish_state", None) or req.check_finished
    check()
    return bool(req.finished())
