"""The engine's traces, switched on by one environment variable: `verify-trace:PATH,rank-sync,kv-ledger,every-token`."""

from __future__ import annotations

import os
from dataclasses import dataclass

VARIABLE = "DDTOOL_ENGINE_TRACE"


@dataclass(frozen=True)
class Switches:
    """verify_trace: file for one JSON line per round and request. rank_sync: compare every round between ranks.

    kv_ledger: after every round check that KV slots are owned once. The last two stop the server when they fail.
    every_token: no round keeps a drafted token, so that the trace has what the drafter says at every position. The text
    is the same, one token a round.
    """

    verify_trace: str | None = None
    rank_sync: bool = False
    kv_ledger: bool = False
    every_token: bool = False

    @classmethod
    def parse(cls, text: str) -> Switches:
        """Raises ValueError on a name it does not know: a trace that is silently off costs a night."""
        trace, names = None, set()
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, argument = part.partition(":")
            if name == "verify-trace" and argument:
                trace = argument
            elif name in ("rank-sync", "kv-ledger", "every-token") and not argument:
                names.add(name)
            else:
                raise ValueError(
                    f"{VARIABLE}={text!r}: {part!r} is not one of verify-trace:PATH, every-token, rank-sync, "
                    "kv-ledger."
                )
        return cls(
            verify_trace=trace,
            rank_sync="rank-sync" in names,
            kv_ledger="kv-ledger" in names,
            every_token="every-token" in names,
        )

    @classmethod
    def from_environment(cls) -> Switches:
        return cls.parse(os.environ.get(VARIABLE, ""))
