"""The files of a tuning run over a machine whose truth is known: the fit, and the run that verified it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.bench_run import designed
from support.tuning import Machine, RoundMs, texts, trace_lines, traced_pass

from ddtool import profile as profiles
from ddtool.bench.tune import plan

RUN, VERIFIED = "20261130-020000-aaaa", "20261130-030000-bbbb"
FITTED = ["chain", *(f"tree:{width - 1}" for width in plan.STEPS)]
TEXTS = texts(21, 12, 64, 0.62)
TUNE = {"tune": {"traced": "code", "workload": "code", "typed": "code", "topk": 8, "experts": None}}


def free(width: int, active: int) -> float:
    return 12 + 0.6 * max(0, width - 33)


def tuned(
    root: Path,
    round_ms: RoundMs,
    verified: Sequence[str] = (),
    loads: Sequence[int] = (1,),
    tree_ms: float = 0.3,
    again: RoundMs | None = None,
    repeats: int = 2,
) -> Path:
    """The fit's folder. repeats: of the fit.

    verified: the arms of a verification beside it. again: what a round costs in that.
    """
    machine = Machine(TEXTS, round_ms, tree_ms=tree_ms)
    path = folder(root, RUN, machine, FITTED, TUNE, repeats, loads)
    with (path / "samples.jsonl").open("a") as file:
        file.write("\n".join(traced_pass(TEXTS, f"code-c{loads[-1]}")) + "\n")
    # the load client's warm-up comes first, and is none of the workload
    warm_up = [line.replace('"rid": "r', '"rid": "w') for line in trace_lines(texts(99, 3, 20))]
    (path / "trace.jsonl").write_text("\n".join([*warm_up, *trace_lines(TEXTS)]) + "\n")
    if verified:
        then = Machine(TEXTS, again, tree_ms=tree_ms) if again else machine
        folder(root, VERIFIED, then, verified, {"verifies": RUN}, 6, loads)
    return path


def folder(
    root: Path,
    name: str,
    machine: Machine,
    arms: Sequence[str],
    how: dict[str, Any],
    repeats: int,
    loads: Sequence[int],
) -> Path:
    """A run's: what it was to measure, and what it did."""
    profile = profiles.load("k26-ddtree")
    concurrency = ",".join(map(str, loads))
    design, _ = designed(
        profile, arms, concurrency=concurrency, tokens=64, repeats=repeats, visits=1, temperature=0.0
    )
    about = {
        "schema": "ddtool.bench.run/1", "run": name, "profile": "k26-ddtree", "host": "gpu1",
        "created": "2026-11-30T02:00:00Z",
        "plan": design.to_json(), "workloads": ["code"], "fingerprint": {}, "taints": [], "warnings": [],
        "objective": None, "how": {"profile": "k26-ddtree", "set": [], "host": "gpu1", **how},
    }  # fmt: skip
    path = root / name
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(about))
    (path / "samples.jsonl").write_text("\n".join(machine.lines(arms, loads, repeats)) + "\n")
    return path
