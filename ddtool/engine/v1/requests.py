"""Which requests DDTREE refuses. SGLang answers them with HTTP 400 and this text; nothing is ignored silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import NAME


def refusal(req: Any) -> str | None:
    """Why `req` (SGLang's `Req`) cannot be served, or None."""
    params = req.sampling_params
    reasons = [
        (req.return_logprob, "log-probabilities (logprobs, return_logprob)"),
        (
            any(
                value is not None
                for value in (params.json_schema, params.regex, params.ebnf, params.structural_tag)
            ),
            "grammars (json_schema, regex, ebnf, structural_tag, response_format)",
        ),
        (
            params.frequency_penalty != 0 or params.presence_penalty != 0 or params.repetition_penalty != 1,
            "penalties (frequency_penalty, presence_penalty, repetition_penalty)",
        ),
        (params.min_new_tokens > 0, "min_new_tokens"),
        (req.return_hidden_states, "return_hidden_states"),
        (getattr(req, "custom_logit_processor", None) is not None, "custom_logit_processor"),
        (req.input_embeds is not None, "input_embeds"),
    ]
    refused = [what for applies, what in reasons if applies]
    if not refused:
        return None
    return f"{NAME} does not support {', '.join(refused)}: send the request without, or to a server without {NAME}."


def validate(original: Callable[[Any], str | None], req: Any) -> str | None:
    """Around SGLang's `validate_dflash_request`, which every algorithm that is_dflash() passes through."""
    from sglang.srt.server_args import get_global_server_args

    if get_global_server_args().speculative_algorithm != NAME:
        return original(req)
    return refusal(req)
