"""Who looks at a finished round: the verify trace, the comparison of ranks, the ledger of KV slots."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..switches import Switches
from .steps import Grown


@dataclass(frozen=True)
class Round:
    """One finished round. positions: where each request's root stands. nodes: the accepted paths [bs, L + 1], before
    a stop cut them; accepted: drafted tokens that each request took."""

    batch: Any
    positions: list[int]
    grown: Grown
    choice: torch.Tensor
    nodes: torch.Tensor
    accepted: list[int]


Observer = Callable[[Round], None]

TRACED = "ddtool-rounds-"
TRACED_ID = re.compile(rf"{TRACED}[0-9a-f]{{16}}")


def observers(switches: Switches, worker: Any, group: Any) -> list[Observer]:
    """Those that are switched on, for this rank."""
    wanted: list[Observer] = []
    unit = os.environ.get("DDTOOL_UNIT")
    if unit and worker.tp_rank == 0:
        wanted.append(RequestTrace(Path(os.environ.get("DDTOOL_RUN", "/run/ddtool")) / unit))
    if switches.verify_trace and worker.tp_rank == 0:
        wanted.append(VerifyTrace(switches.verify_trace))
    if switches.rank_sync and group.world_size > 1:
        wanted.append(RankSync(group))
    if switches.kv_ledger:
        wanted.append(KvLedger())
    return wanted


class VerifyTrace:
    """All requests' rounds as JSON lines, one per round and request."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  for the server's life

    def __call__(self, done: Round) -> None:
        for line in trace_lines(done, range(len(done.positions))):
            self._file.write(line)


class RequestTrace:
    """The same of single requests, without a restart: those for whose rounds a file waits in `folder`.

    Only who may write there can ask, and asks by the file's name, which is the request's id. To everybody else a round
    costs one look at each id.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, done: Round) -> None:
        for row, req in enumerate(done.batch.reqs):
            if req.rid.startswith(TRACED) and TRACED_ID.fullmatch(req.rid):
                path = self._folder / f"{req.rid}.jsonl"
                if path.exists():
                    with path.open("a", encoding="utf-8") as file:
                        file.writelines(trace_lines(done, [row]))


def trace_lines(done: Round, rows: Iterable[int]) -> list[str]:
    """The verify trace's lines, for the requests at `rows` of the batch."""
    trees = done.grown.trees
    logprobs, ids = done.grown.logprobs.tolist(), done.grown.ids.tolist()
    parents, ranks = trees.parents.tolist(), trees.ranks.tolist()
    nodes, choice = done.nodes.tolist(), done.choice.tolist()
    roots = trees.tokens[:, 0].tolist()
    lines = []
    for row in rows:
        req, taken = done.batch.reqs[row], done.accepted[row]
        line = {
            "rid": req.rid,
            "round": req.spec_verify_ct - 1,  # this one is counted already
            "position": done.positions[row],
            "root": roots[row],
            "logprobs": logprobs[row],
            "ids": ids[row],
            "parents": parents[row],
            "ranks": ranks[row],
            "path_ranks": [ranks[row][node] for node in nodes[row][1 : taken + 1]],
            "accepted": taken,
            "bonus": choice[row][nodes[row][taken]],  # the round's last token
        }
        lines.append(json.dumps(line) + "\n")
    return lines


class RankSync:
    """All ranks must have drafted the same tree and read the same choices from it."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __call__(self, done: Round) -> None:
        parts = {
            "tree": done.grown.trees.tokens,
            "structure": done.grown.trees.parents,
            "choice": done.choice,
        }
        mine = torch.stack([_checksum(part) for part in parts.values()])
        everyone = mine.new_empty(self._group.world_size * len(parts))
        self._group.all_gather_into_tensor(everyone, mine)
        sums = everyone.view(self._group.world_size, len(parts)).tolist()
        for rank, theirs in enumerate(sums):
            wrong = [name for name, one, other in zip(parts, sums[0], theirs, strict=True) if one != other]
            if wrong:
                raise RuntimeError(
                    f"DDTREE rank-sync: rank {rank} differs from rank 0 in {', '.join(wrong)} at positions "
                    f"{done.positions}: from here on the ranks would answer different texts, or hang."
                )


class KvLedger:
    """A KV slot belongs to one request's row, to the radix cache, or to the free list; never to two of them."""

    def __call__(self, done: Round) -> None:
        batch = done.batch
        allocator = batch.token_to_kv_pool_allocator
        free = torch.cat([allocator.free_pages, allocator.release_pages])
        if free.unique().numel() != free.numel():
            raise RuntimeError("DDTREE kv-ledger: a slot was freed twice.")
        table = batch.req_to_token_pool.req_to_token
        for req, row, length in zip(
            batch.reqs, batch.req_pool_indices.tolist(), batch.seq_lens.tolist(), strict=True
        ):
            slots = table[row, :length].to(free.dtype)
            if slots.unique().numel() != length:
                raise RuntimeError(f"DDTREE kv-ledger: request {req.rid} holds a slot twice.")
            if torch.isin(slots, free).any():
                raise RuntimeError(f"DDTREE kv-ledger: request {req.rid} holds a slot that is free.")
            if length != req.kv_committed_len:
                raise RuntimeError(
                    f"DDTREE kv-ledger: request {req.rid} has length {length}, but {req.kv_committed_len} committed."
                )


def _checksum(part: torch.Tensor) -> torch.Tensor:
    """A position-dependent sum; 64-bit overflow wraps alike everywhere."""
    flat = part.flatten().to(torch.int64)
    return (flat * (torch.arange(flat.numel(), device=flat.device) * 2654435761 + 1)).sum()
