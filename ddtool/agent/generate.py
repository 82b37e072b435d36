"""Requests for one completion of a service, with or without the rounds in which it came about."""

from __future__ import annotations

from typing import Any, Dict

from . import client, gate, releases, rounds
from .errors import Unhealthy
from .registry import Context, op


@op("generate")
def generate(
    ctx: Context, unit_name: str, prompt: str, max_new_tokens: int, temperature: float, timeout_s: float
) -> Dict[str, Any]:
    """One completion on the host: `{text, output_ids, meta_info, seconds, accept_length}`."""
    spec = deployed(ctx, unit_name)
    return _completion(unit_name, spec, _payload(prompt, max_new_tokens, temperature), timeout_s)


@op("generate.rounds")
def generate_rounds(
    ctx: Context, unit_name: str, prompt: str, max_new_tokens: int, temperature: float, timeout_s: float
) -> Dict[str, Any]:
    """A completion and how it came about: `generate`'s answer with `output_ids`, `rounds` (the verify trace's objects)
    and `texts` (token id → text) of all that occurs in them."""
    spec = deployed(ctx, unit_name)
    payload = _payload(prompt, max_new_tokens, temperature)
    with rounds.RoundTrace(ctx, unit_name) as trace:
        answer = _completion(unit_name, spec, {**payload, "rid": trace.rid}, timeout_s)
        traced = trace.lines()
    said = answer["output_ids"]
    drafted = {token for line in traced for position in line["ids"] for token in position}
    known = rounds.texts(spec, sorted({*said, *drafted}), timeout_s) if traced else {}
    return {**answer, "rounds": traced, "texts": known}


def deployed(ctx: Context, unit_name: str) -> Dict[str, Any]:
    """The gate's spec of what is deployed; an error when nothing is."""
    spec = releases.current_gate(ctx, unit_name)
    if spec is None:
        raise Unhealthy(f"{unit_name} is not deployed on this host", hint="ddtool deploy PROFILE")
    return spec


def _payload(prompt: str, max_new_tokens: int, temperature: float) -> Dict[str, Any]:
    return {
        "text": prompt,
        "sampling_params": {"temperature": temperature, "max_new_tokens": max_new_tokens},
    }


def _completion(
    unit_name: str, spec: Dict[str, Any], payload: Dict[str, Any], timeout_s: float
) -> Dict[str, Any]:
    try:
        answer = client.request(
            spec["address"], spec["port"], "/generate", payload, spec["api_key"], timeout_s
        )
    except OSError as error:
        raise Unhealthy(f"{unit_name} does not answer: {error}", hint="ddtool status") from error
    if answer.status != 200:
        raise Unhealthy(
            f"{unit_name} answered {answer.status}: {str(answer.body)[:1000]}",
            hint="ddtool logs --since 5min",
        )
    return {
        "text": answer.body["text"],
        "output_ids": answer.body.get("output_ids", []),
        "meta_info": answer.body["meta_info"],
        "seconds": round(answer.seconds, 3),
        "accept_length": gate.accept_length(answer.body["meta_info"]),
    }
