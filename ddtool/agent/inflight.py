"""Requests that a service has in flight, and waiting until there are none.

SGLang counts them at `/v1/loads` (0.5.11 and later): what its scheduler decodes and what waits for it. A request that
is still being tokenized is not in there yet, so one reading of zero proves nothing; two of them, a second apart, count.
Nothing can be refused meanwhile: SGLang has no such switch, and ddtool puts no proxy in front of it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from . import client

PATH = "/v1/loads?include=core"
PATIENCE_S = 2.0
POLL_S = 1.0
QUIET_READINGS = 2

Json = Dict[str, Any]
Emit = Callable[..., None]


def count(spec: Json) -> Json:
    """`{running, waiting}`, or `{unknown: why, hopeless}` when the service does not say; hopeless: it never will.

    `spec`: address, port and api_key as in the gate's.
    """
    address, port = spec["address"], spec["port"]
    if not client.listening(address, port):
        return {"running": 0, "waiting": 0}
    try:
        answer = client.request(address, port, PATH, api_key=spec.get("api_key"), timeout=PATIENCE_S)
    except OSError as error:
        return {"unknown": f"/v1/loads does not answer: {error}", "hopeless": False}
    if answer.status != 200:
        return {"unknown": f"/v1/loads answers {answer.status}", "hopeless": answer.status in (401, 403, 404)}
    try:
        loads = answer.body["loads"]
        return {
            "running": sum(int(item["num_running_reqs"]) for item in loads),
            "waiting": sum(int(item["num_waiting_reqs"]) for item in loads),
        }
    except (TypeError, KeyError, ValueError):
        return {"unknown": "/v1/loads answers something else than SGLang's", "hopeless": True}


def drain(spec: Json, seconds: float, emit: Emit) -> Json:
    """Wait until nothing is in flight, at most `seconds`: `{waited_s, most, left, unknown}`.

    `most`: the most that was seen at once. `left`: in flight at the end, None when the service does not say.
    """
    begun = time.monotonic()
    most, quiet = 0, 0
    told: Optional[Json] = None
    while True:
        seen = count(spec)
        left_s = begun + seconds - time.monotonic()
        total = None if "unknown" in seen else seen["running"] + seen["waiting"]
        most, quiet = max(most, total or 0), quiet + 1 if total == 0 else 0
        if seen != told:
            emit("draining", **seen, left_s=round(max(0.0, left_s), 1))
            told = seen
        if quiet == QUIET_READINGS or seen.get("hopeless") or left_s <= 0:
            waited = round(time.monotonic() - begun, 1)
            return {"waited_s": waited, "most": most, "left": total, "unknown": seen.get("unknown")}
        time.sleep(min(POLL_S, max(0.05, left_s)))
