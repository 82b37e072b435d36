"""A tuning run on the host: the first stage, and its trace. The second is a benchmark like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddtool.bench import host_run
from ddtool.bench.on_host import Measurement
from ddtool.bench.passes import Design
from ddtool.bench.store import Folder
from ddtool.bench.tune import plan
from ddtool.bench.tune.reading import TRACE_FILE
from ddtool.bench.workloads import Workload
from ddtool.deploy.deployment import Deployment
from ddtool.errors import DdtoolError, HostError
from ddtool.transport.agent import Agent


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
        and has_trace(deployment.agent, resumed)
    ):
        return made
    path = f"{deployment.state}/bench/{made.about['run']}/{TRACE_FILE}"
    arm = plan.traced_arm(deployment.profile, path)
    built, _ = host_run.build(deployment, [arm], after=len(made.built))
    return replace(made, built={**made.built, **built}, left=[*made.left, visit])


def has_trace(agent: Agent, folder: Folder) -> bool:
    """Whether it is here, or still on the host and then here: the link may have been cut before it was copied."""
    path = folder.path / TRACE_FILE
    if not path.exists():
        try:
            fetch_trace(agent, folder)
        except HostError:
            raise
        except DdtoolError:  # the host has cleared it away
            return False
    return True


def fetch_trace(agent: Agent, folder: Folder) -> None:
    """Copy the host's trace. What stands under its name is whole."""
    aside = folder.path / f"{TRACE_FILE}.partial"
    with aside.open("wb") as file:
        size = 1
        while file.tell() < size:
            data, size = host_run.piece(agent, folder.path.name, file.tell(), file=TRACE_FILE)
            file.write(data)
    aside.replace(folder.path / TRACE_FILE)
