"""SGLang general plugin (entry point group `sglang.srt.plugins`): the two code paths that assume a GPU.

SGLang loads it in the main process and in every scheduler process, before anything else of the engine runs.
"""

from __future__ import annotations

from typing import Any

DRAFTER_FORWARD = "sglang.srt.models.dflash.DFlashDraftModel.forward"
TP_GATHER = "sglang.srt.distributed.parallel_state.GroupCoordinator.all_gather_into_tensor"


def cast_input_embeds(model: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """ModelRunner.forward_extend casts `input_embeds` to bfloat16 whatever the model's dtype; cast them back.

    Only the drafter's proposals see the lost bits, never the target: the text stays that of plain decoding.
    """
    embeds = kwargs.get("input_embeds")
    if embeds is not None:
        kwargs["input_embeds"] = embeds.to(model.fc.weight.dtype)
    return (model, *args), kwargs


def gather_through_gloo(group: Any, output: Any, input: Any) -> Any:
    """`all_gather_into_tensor` goes through a custom operator without a CPU kernel; call what it wraps."""
    return group._all_gather_into_tensor(output, input)


def install() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(DRAFTER_FORWARD, cast_input_embeds, HookType.BEFORE)
    HookRegistry.register(TP_GATHER, gather_through_gloo, HookType.REPLACE)
