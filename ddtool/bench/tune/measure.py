"""A tuning run's two stages on the host, and what its files say afterwards."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddtool.bench import host_run, records
from ddtool.bench.on_host import Measurement
from ddtool.bench.passes import Design
from ddtool.bench.store import Folder
from ddtool.bench.tune import plan, trace
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.answer import Found
from ddtool.bench.tune.cost import Experts
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import Timing, timings
from ddtool.bench.workloads import Workload
from ddtool.deploy.deployment import Deployment
from ddtool.errors import UsageError
from ddtool.transport.agent import Agent

TRACE_FILE = "trace.jsonl"
EXPERTS_FILE = "experts.json"


def prepare(
    deployment: Deployment,
    design: Design,
    loaded: Mapping[str, Workload],
    *,
    typed: Sequence[str],
    how: Mapping[str, Any],
    traced: str,
    resumed: Folder | None = None,
) -> Measurement:
    """The first stage: the chain and a tree of each width, and at the end the server that writes the trace.

    traced: the workload that it is written for. Raises what `host_run.prepare` raises.
    """
    made = host_run.prepare(deployment, design, loaded, typed=typed, how=how, resumed=resumed)
    visit = plan.traced_visit(design, traced)
    if (
        resumed is not None
        and visit.passes[0].ident in resumed.done()
        and (resumed.path / TRACE_FILE).exists()
    ):
        return made
    path = f"{deployment.state}/bench/{made.about['run']}/{TRACE_FILE}"
    tracing = copy.copy(deployment)
    tracing.profile = plan.traced_profile(deployment.profile, path)
    _, built, _ = host_run.build(tracing, [plan.traced_arm(deployment.profile)])
    return replace(made, built={**made.built, **built}, left=[*made.left, visit])


def fetch_trace(agent: Agent, folder: Folder) -> None:
    """Copy what the host has of the trace and this machine has not."""
    path = folder.path / TRACE_FILE
    with path.open("ab") as file:
        while True:
            piece = agent.call("bench.fetch", run=folder.path.name, offset=file.tell(), file=TRACE_FILE)
            file.write(zlib.decompress(base64.b64decode(piece["data"])))
            if piece["next"] >= piece["size"]:
                return


def found(fit: Folder, verified: Folder | None) -> Found:
    """What a run's files say. Raises UsageError where the run has no trace, DdtoolError where it is not enough."""
    about = fit.run
    how = about["how"].get("tune")
    path = fit.path / TRACE_FILE
    if how is None or not path.exists():
        raise UsageError(
            f"{fit.path.name} has no trace of what the drafter said, so it tells nothing of other budgets",
            why="only runs of `ddtool tune` have one",
            hint="ddtool tune",
        )
    topk = int(how["topk"])
    measured = of_run(fit, topk)
    widest = max((one.shape.budget for one in measured if one.shape is not None), default=0)
    with path.open(encoding="utf-8") as lines:
        acceptance = Acceptance(trace.read(lines), max(widest, 1))
    experts = experts_in(fit, how)
    return Found(
        predictor=Predictor(measured, acceptance, experts),
        timings=measured,
        verified=of_run(verified, topk) if verified else [],
        traced=str(how["traced"]),
        topk=topk,
        experts=experts,
    )


def of_run(folder: Folder, topk: int) -> list[Timing]:
    """Timings of a run's passes, but the traced one."""
    whole = records.read(folder.lines()).passes
    return timings([one for one in whole if one.id.arm != plan.TRACE], topk)


def experts_in(fit: Folder, how: Mapping[str, Any]) -> Experts | None:
    """Of the target, with what SGLang's recorder counted where the run has that."""
    if not how.get("experts"):
        return None
    count, chosen = how["experts"]
    path = Path(fit.path / EXPERTS_FILE)
    counted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return Experts(count, chosen, {int(width): float(seen) for width, seen in counted.items()} or None)
