"""A pass of the load client on a real server of the engine tests, as `bench --lossless` asks for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from support.engine_server import EngineServer

from ddtool.agent import load

Json = dict[str, Any]


def run_pass(
    server: EngineServer,
    name: str,
    asked: Sequence[str],
    prompts: Mapping[str, Json],
    sampling: Json,
    *,
    concurrency: int,
    warm_up: int = 0,
) -> list[Json]:
    """The lines of pass `name`, answers kept. asked: the hash of each request's prompt; no request may fail."""
    requests = [
        {"index": index, "prompt": sha, "body": {**prompts[sha], "sampling_params": sampling}}
        for index, sha in enumerate(asked)
    ]
    lines: list[Json] = []
    spec = {
        "pass": name,
        "attempt": 1,
        "address": server.sandbox.address,
        "port": server.sandbox.published[server.port],
        "api_key": None,
        "requests": requests,
        "concurrency": concurrency,
        "seed": 1,
        "warmup": requests[:warm_up],
        "flush_cache": True,
        "timeout_s": 240,
        "keep_text": True,
    }
    load.run_pass(spec, lines.append, threading.Event())
    assert not [line for line in lines if line.get("error")]
    return lines
