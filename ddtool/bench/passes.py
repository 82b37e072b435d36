"""What is measured, in which order, and what each pass asks of the load client. Pure.

A pass is one go of one arm over one cell. On the host one server runs at a time, so arms alternate by visit: A B C,
then C B A. Servers that live side by side (`--url`) alternate pass by pass.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ddtool.bench.workloads import Prompt, Workload, taken
from ddtool.errors import UsageError

LEAST_PROMPTS = 8
LOSSLESS_PROMPTS = 32  # fewer give a share of differing outputs that says little
WARMUP_TOKENS = 32  # of the shortest answer of a warm-up, and of a single one
PLAIN = "plain"  # the arm that others are judged by


@dataclass(frozen=True)
class Cell:
    """A load: one of `concurrency` (so many requests at a time) and `rate` (requests a second, Poisson)."""

    workload: str
    concurrency: int | None
    rate: float | None
    temperature: float
    prompts: int
    max_tokens: int

    @property
    def key(self) -> str:
        load = f"c{self.concurrency}" if self.concurrency else f"r{self.rate:g}"
        return f"{self.workload}-{load}" + (f"-t{self.temperature:g}" if self.temperature else "")

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self)}


@dataclass(frozen=True, order=True)
class Pass:
    """One go of one arm over one cell: `tree:32/code-c1/v0/r2`."""

    arm: str
    cell: str
    visit: int
    repeat: int

    @property
    def ident(self) -> str:
        return f"{self.arm}/{self.cell}/v{self.visit}/r{self.repeat}"

    @classmethod
    def parse(cls, text: str) -> Pass:
        """Of its `ident`. Raises ValueError for anything else."""
        arm, cell, visit, repeat = text.rsplit("/", 3)
        if not arm or not cell or visit[:1] != "v" or repeat[:1] != "r":
            raise ValueError(f"not a pass: {text!r}")
        return cls(arm, cell, int(visit[1:]), int(repeat[1:]))


@dataclass(frozen=True)
class Visit:
    """One start of an arm's server, and what is measured on it. `warm_up`: as the design has it, or not at all."""

    arm: str
    number: int
    passes: Sequence[Pass]
    warm_up: bool = True


@dataclass(frozen=True)
class Design:
    """All of a run. `sampling`: what every request asks for, beside its length. `flush`: empty the prefix cache before
    each pass. `own`: the arm that the profile is, if it takes part. `slo`: bounds in ms that goodput counts by."""

    arms: Sequence[str]
    cells: Sequence[Cell]
    visits: int
    repeats: int
    tokens: int
    temperature: float
    seed: int
    warmup: bool = True
    flush: bool = True
    ignore_eos: bool = False
    lossless: bool = False
    timeout_s: float = 120.0
    own: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    slo: Mapping[str, float] = field(default_factory=dict)

    @property
    def asks_plain(self) -> bool:
        """Whether plain decoding is asked which differences from its answers are near ties."""
        return self.lossless and self.temperature == 0 and PLAIN in self.arms

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields, "arms": list(self.arms), "cells": [cell.to_json() for cell in self.cells]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Design:
        """Raises UsageError for what is no design, or one of another ddtool."""
        try:
            cells = [
                Cell(**{name: value for name, value in cell.items() if name != "key"})
                for cell in data["cells"]
            ]
            return cls(**{**data, "cells": cells})
        except (TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"the run's plan is none of this ddtool: {error}", hint="begin anew without --resume"
            ) from None

    def cell(self, key: str) -> Cell:
        return next(cell for cell in self.cells if cell.key == key)


def cells(
    workloads: Sequence[Workload],
    concurrencies: Sequence[int],
    rates: Sequence[float],
    *,
    temperature: float,
    tokens: int,
    prompts: int | None,
    lossless: bool,
) -> list[Cell]:
    """Every workload under every load. `prompts`: of each pass; default: enough for two rounds of each request slot.

    One for each slot at least: with fewer the load would be less than its cell's name says.
    """
    found = []
    for workload in workloads:
        for concurrency, rate in [*((one, None) for one in concurrencies), *((None, one) for one in rates)]:
            held = len(workload.prompts)
            count = max(prompts or max(LEAST_PROMPTS, min(2 * (concurrency or held), held)), concurrency or 0)
            if lossless and temperature == 0:
                count = max(count, LOSSLESS_PROMPTS)
            own = {prompt.max_tokens for prompt in workload.prompts if prompt.max_tokens}
            longest = max(own) if own else tokens
            found.append(Cell(workload.name, concurrency, rate, temperature, count, longest))
    keys = [cell.key for cell in found]
    if len(set(keys)) != len(keys):
        raise UsageError("two cells would have the same name", hint="give each workload and each load once")
    return found


def visits(design: Design) -> list[Visit]:
    """In the order in which the servers start. Every visit measures every cell, `repeats` times, cells in turn."""
    found = []
    for number in range(design.visits):
        for arm in design.arms if number % 2 == 0 else [*reversed(design.arms)]:
            passes = [
                Pass(arm, cell.key, number, repeat)
                for repeat in range(design.repeats)
                for cell in design.cells
            ]
            found.append(Visit(arm, number, passes))
    return found


def alternating(design: Design) -> list[Pass]:
    """For servers that live side by side: within a cell and repeat every arm once, forwards and backwards in turn."""
    found = []
    for number in range(design.visits * design.repeats):
        arms = design.arms if number % 2 == 0 else [*reversed(design.arms)]
        found += [
            Pass(arm, cell.key, *divmod(number, design.repeats)) for cell in design.cells for arm in arms
        ]
    return found


def without(planned: Iterable[Visit], done: Iterable[str]) -> list[Visit]:
    """What is left: visits with a pass that has no end, and of each only those passes."""
    over = set(done)
    left = [
        replace(visit, passes=[one for one in visit.passes if one.ident not in over]) for visit in planned
    ]
    return [visit for visit in left if visit.passes]


def spec(one: Pass, design: Design, workload: Workload, *, attempt: int, warm_up: bool) -> dict[str, Any]:
    """What the load client is asked for, but for the server's address. `warm_up`: the server's first pass of this cell.

    Arrivals at a rate depend on repeat and visit, never on the arm.
    """
    cell = design.cell(one.cell)
    bodies = [
        request(number, prompt, cell, design, workload)
        for number, prompt in enumerate(taken(workload, cell.prompts))
    ]
    load = {"concurrency": cell.concurrency} if cell.concurrency else {"rate": cell.rate}
    return {
        "pass": one.ident,
        "attempt": attempt,
        "requests": bodies,
        **load,
        "seed": design.seed + one.visit * design.repeats + one.repeat,
        "warmup": warm_up_requests(cell, design, workload) if warm_up and design.warmup else [],
        "flush_cache": design.flush,
        "timeout_s": design.timeout_s,
        # Greedy answers are the same each time; sampled ones are compared by their distribution.
        "keep_text": design.lossless and (cell.temperature > 0 or (one.visit, one.repeat) == (0, 0)),
    }


def specs(
    passes: Iterable[Pass], design: Design, workloads: Mapping[str, Workload], attempts: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The passes of one server, in order; each cell is warmed up before its first one."""
    found, warm = [], set()
    for one in passes:
        workload = workloads[design.cell(one.cell).workload]
        attempt = attempts.get(one.ident, 0) + 1
        found.append(spec(one, design, workload, attempt=attempt, warm_up=(one.arm, one.cell) not in warm))
        warm.add((one.arm, one.cell))
    return found


def request(
    index: int, prompt: Prompt, cell: Cell, design: Design, workload: Workload, most: int | None = None
) -> dict[str, Any]:
    length = prompt.max_tokens or design.tokens
    sampling = {
        **design.sampling,
        "temperature": cell.temperature,
        "max_new_tokens": min(length, most or length),
    }
    if design.ignore_eos or workload.fixed:
        sampling["ignore_eos"] = True
    return {"index": index, "prompt": prompt.sha, "body": {**prompt.given, "sampling_params": sampling}}


def warm_up_requests(cell: Cell, design: Design, workload: Workload) -> list[dict[str, Any]]:
    """As many at once as the cell has, of prompts that are not measured where the workload has such.

    They end one after another, the last at full length: a batch that shrinks meets kernels that nobody compiled yet,
    0.2 s in the midst of a pass (docs/results, i-tp2).
    """
    count = warm_up_count(cell)
    spare = list(workload.prompts[cell.prompts :]) or shuffled(workload.prompts, design.seed)
    found = []
    for number in range(count):
        prompt = spare[number % len(spare)]
        more = (prompt.max_tokens or design.tokens) - WARMUP_TOKENS
        longest = WARMUP_TOKENS + more * number // max(1, count - 1)
        found.append(request(number, prompt, cell, design, workload, longest))
    return found


def warm_up_count(cell: Cell) -> int:
    return min(cell.concurrency or LEAST_PROMPTS, cell.prompts)


def warm_up_tokens(cell: Cell) -> int:
    """Of the longest answer of its warm-up; the others are there at the same time."""
    return cell.max_tokens if warm_up_count(cell) > 1 else min(WARMUP_TOKENS, cell.max_tokens)


def shuffled(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    mixed = list(prompts)
    random.Random(seed).shuffle(mixed)  # noqa: S311  reproducible, not secret
    return mixed
