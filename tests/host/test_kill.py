"""kill -9 and cut links at every step of every change: files old or new, never a start on a mixed set, lock free.

The small service of tests/support/mini stands in for SGLang. A witness on the host notes what each start of it saw.
`pytest -m slow` kills at every single act; the default takes every step's boundary and a seeded sample.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support import doctored
from support.world import BACK, OPERATIONS, World, ignore, prepare

from ddtool.errors import DdtoolError
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def world(host: Sandbox) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        yield prepare(host)


def attack(
    world: World, operation: str, verb: str, at: int, within: str | None = None
) -> dict[str, Any] | None:
    """Kill `verb`'s process at its `at`-th act of the operation, then check, recover and check again.

    Returns what was hit and how it ended; None when the operation was over before its `at`-th act.
    """
    old = world.files()
    make, variant = OPERATIONS[operation]
    doctored.arm(world.host, verb, at, within)
    with world.connect(variant) as deployment:
        try:
            deployment.apply(make(deployment), ignore)
        except DdtoolError as error:
            said = str(error)
        else:
            said = ""
    hit = doctored.fired(world.host)
    if hit is None:
        assert bool(said) == (operation not in BACK), said
        doctored.disarm(world.host)
        if operation in BACK:
            world.change(BACK[operation])
        return None
    if operation in BACK:
        check_old_or_new(world.files(), old, world.outcomes[operation], hit)
    world.recover(hit)
    now = world.files()
    hit["end"] = "undone" if now == old else "finished"
    if hit["end"] == "finished":
        assert now == world.outcomes[operation], hit
        world.change(BACK[operation])
    return hit


def check_old_or_new(
    found: dict[str, Any], old: dict[str, Any], new: dict[str, Any], hit: dict[str, Any]
) -> None:
    """Right after the kill, before anything has recovered. The gate's drop-in is neither before nor after."""
    for name in (found.keys() | old.keys() | new.keys()) - {"ddtool-gate.conf"}:
        assert found.get(name) in (old.get(name), new.get(name)), (name, hit)


@contextmanager
def attacked(world: World, operation: str, verb: str) -> Iterator[list[dict[str, Any]]]:
    """The host ready for the operation, and the acts of one that was not disturbed."""
    before = ["diag enable"] if operation == "restore" else []
    for name in before:
        world.change(name)
    if operation == "remove":  # the first takes a history with it, file by file, that no later one finds
        world.change("remove")
        world.change("deploy A")
    doctored.arm(world.host, verb, 0)
    world.change(operation)
    acts = doctored.acts(world.host)
    world.outcomes[operation] = world.files()
    world.change(BACK[operation])
    yield acts
    for name in before:
        world.change(BACK[name])
    world.check_starts()
    assert world.look()["temps"] == []


def boundaries(acts: list[dict[str, Any]]) -> set[int]:
    """Where a line of the transaction's journal is on disk and what it announces has not begun."""
    return {act["at"] for act in acts if act["act"] == "fsync" and act["in"][:2] == ["append_line", "record"]}


@pytest.mark.parametrize("operation", ["deploy B", "diag enable", "restore"])
def test_executor_killed_at_every_step(world: World, operation: str) -> None:
    with attacked(world, operation, "txn") as acts:
        steps = boundaries(acts)
        others = sorted({act["at"] for act in acts} - steps)
        sample = random.Random(operation).sample(others, 3)
        hits = [attack(world, operation, "txn", at) for at in sorted({*steps, *sample})]
    ends = [hit["end"] for hit in hits if hit]
    assert len(ends) >= len(steps) and "undone" in ends


@pytest.mark.parametrize("operation", ["deploy B", "diag enable"])
def test_serving_agent_killed(world: World, operation: str) -> None:
    with attacked(world, operation, "serve") as acts:
        sample = random.Random(operation).sample([act["at"] for act in acts], 3)
        assert all(attack(world, operation, "serve", at) for at in sample)


def test_a_deploy_finishes_a_remove_that_was_killed(world: World) -> None:
    """Which takes the agent's own files off the host, and with them those that the deploy's connection runs from."""
    doctored.arm(world.host, "txn", 1, "finish_steps")
    with pytest.raises(DdtoolError):
        world.change("remove")
    assert doctored.fired(world.host)
    with world.connect() as deployment:
        deployment.settle(ignore)
        assert "sglang-mini.service" not in world.files()
        deployment.apply(deployment.plan_deploy(), ignore)
    world.check_starts()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("verb", ["txn", "serve"])
@pytest.mark.parametrize("operation", BACK)
def test_every_act(world: World, operation: str, verb: str) -> None:
    with attacked(world, operation, verb) as acts:
        hits = []
        while hit := attack(world, operation, verb, len(hits) + 1):
            hits.append(hit)
            print(json.dumps(hit), flush=True)
    assert len(hits) >= len(acts) * 0.8


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_act_of_an_undo(world: World) -> None:
    """The deploy of a service that crashes at its start is killed while it is rolled back."""
    hits = []
    while hit := attack(world, "deploy crash", "txn", len(hits) + 1, "undo_all"):
        hits.append(hit)
        print(json.dumps(hit), flush=True)
    assert {hit["end"] for hit in hits} == {"undone"}
