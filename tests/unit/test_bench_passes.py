"""Designs: which passes, in which order, and what each asks of the load client."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import mini
from support.bench_run import designed

from ddtool.bench import asked, passes
from ddtool.bench.passes import Cell, Design, Visit
from ddtool.bench.progress import Progress
from ddtool.bench.workloads import Prompt, Workload
from ddtool.errors import UsageError
from ddtool.profile import load

ARMS = ["plain", "chain", "tree:16", "tree:32:4"]
WORK = Workload("code", [Prompt({"text": f"prompt {number}"}) for number in range(32)])


def cell(
    concurrency: int | None = 1, rate: float | None = None, temperature: float = 0.0, prompts: int = 8
) -> Cell:
    return Cell("code", concurrency, rate, temperature, prompts, 64)


def design(**changed: Any) -> Design:
    base: dict[str, Any] = {
        "arms": ARMS[:3],
        "cells": [cell(1), cell(4)],
        "visits": 2,
        "repeats": 3,
        "tokens": 64,
        "temperature": 0.0,
        "seed": 1,
    }
    return Design(**{**base, **changed})


designs = st.builds(
    design,
    arms=st.integers(1, 4).map(lambda count: ARMS[:count]),
    cells=st.integers(1, 3).map(lambda count: [cell(2**number) for number in range(count)]),
    visits=st.integers(1, 5),
    repeats=st.integers(1, 6),
)


@given(designs)
def test_both_orders_measure_the_same_passes_each_once(made: Design) -> None:
    by_visit = [one.ident for visit in passes.visits(made) for one in visit.passes]
    side_by_side = [one.ident for one in passes.alternating(made)]
    count = len(made.arms) * len(made.cells) * made.visits * made.repeats
    assert len(by_visit) == len(set(by_visit)) == count
    assert sorted(by_visit) == sorted(side_by_side)
    for ident in by_visit:
        assert passes.Pass.parse(ident).ident == ident


@given(designs)
def test_visits_go_forwards_and_backwards_so_that_drift_hits_all_arms_alike(made: Design) -> None:
    found = passes.visits(made)
    orders = [[visit.arm for visit in group] for _, group in groupby(found, key=lambda visit: visit.number)]
    for number, order in enumerate(orders):
        assert order == (list(made.arms) if number % 2 == 0 else [*reversed(made.arms)])
    if made.visits % 2 == 0:
        places = {arm: sum(at for at, visit in enumerate(found) if visit.arm == arm) for arm in made.arms}
        assert len(set(places.values())) == 1, "the same mean moment"


@given(designs)
def test_side_by_side_no_arm_runs_a_second_time_before_every_other_ran(made: Design) -> None:
    found = passes.alternating(made)
    for key in {one.cell for one in found}:
        mine = [one.arm for one in found if one.cell == key]
        for at in range(0, len(mine), len(made.arms)):
            assert sorted(mine[at : at + len(made.arms)]) == sorted(made.arms)


@given(designs, st.data())
def test_what_is_left_is_what_has_no_end_in_the_same_order(made: Design, data: st.DataObject) -> None:
    planned = passes.visits(made)
    every = [one.ident for visit in planned for one in visit.passes]
    done = data.draw(st.sets(st.sampled_from(every)))
    left = passes.without(planned, done)
    assert [one.ident for visit in left for one in visit.passes] == [
        ident for ident in every if ident not in done
    ]
    assert all(visit.passes for visit in left)


@given(designs)
def test_a_design_survives_json(made: Design) -> None:
    assert Design.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_keys_of_cells() -> None:
    assert [cell(16).key, cell(None, 2.5).key, cell(1, None, 0.6).key] == [
        "code-c16",
        "code-r2.5",
        "code-c1-t0.6",
    ]


def test_a_pass_asks_the_same_of_every_arm() -> None:
    made = design()
    mine = [one for one in passes.alternating(made) if (one.visit, one.repeat, one.cell) == (1, 2, "code-c4")]
    specs = [passes.spec(one, made, WORK, attempt=1, warm_up=False) for one in mine]
    assert len(specs) == 3
    assert len({json.dumps({**spec, "pass": ""}) for spec in specs}) == 1
    assert specs[0]["seed"] == 1 + 1 * 3 + 2
    assert specs[0]["flush_cache"] is True and specs[0]["concurrency"] == 4 and "rate" not in specs[0]
    first = specs[0]["requests"][0]
    assert first == {
        "index": 0,
        "prompt": WORK.prompts[0].sha,
        "body": {"text": "prompt 0", "sampling_params": {"temperature": 0.0, "max_new_tokens": 64}},
    }


def test_a_server_is_warmed_up_once_for_each_cell_with_prompts_that_are_not_measured() -> None:
    made = design()
    visit = passes.visits(made)[0]
    specs = passes.specs(visit.passes, made, {"code": WORK}, {visit.passes[0].ident: 2})
    assert [bool(spec["warmup"]) for spec in specs] == [True, True, False, False, False, False]
    measured = {item["prompt"] for spec in specs for item in spec["requests"]}
    for spec in specs[:2]:
        assert len(spec["warmup"]) == spec["concurrency"]
        assert not measured & {item["prompt"] for item in spec["warmup"]}
    assert specs[0]["attempt"] == 3 and specs[1]["attempt"] == 1


@pytest.mark.parametrize(
    ("concurrency", "tokens", "own", "lengths"),
    [
        (1, 256, None, [32]),
        (4, 64, None, [32, 42, 53, 64]),
        (4, 64, 92, [32, 52, 72, 92]),  # a prompt's own length
        (4, 8, None, [8, 8, 8, 8]),
        (None, 256, None, [32, 64, 96, 128, 160, 192, 224, 256]),  # at a rate
    ],
)
def test_answers_of_a_warm_up_end_one_after_another(
    concurrency: int | None, tokens: int, own: int | None, lengths: list[int]
) -> None:
    work = Workload("x", [Prompt({"text": str(number)}, own) for number in range(32)])
    at_rate = [] if concurrency else [2.5]
    (found,) = passes.cells(
        [work],
        [concurrency] if concurrency else [],
        at_rate,
        temperature=0,
        tokens=tokens,
        prompts=None,
        lossless=False,
    )
    made = design(cells=[found], tokens=tokens)
    asked = passes.warm_up_requests(found, made, work)
    assert [item["body"]["sampling_params"]["max_new_tokens"] for item in asked] == lengths


def test_answers_are_kept_where_losslessness_needs_them() -> None:
    greedy, hot = (
        design(lossless=True),
        design(lossless=True, cells=[cell(1, temperature=1.0)], temperature=1.0),
    )
    kept = {
        one.ident
        for one in passes.alternating(greedy)
        if passes.spec(one, greedy, WORK, attempt=1, warm_up=False)["keep_text"]
    }
    assert kept == {f"{arm}/{key}/v0/r0" for arm in ARMS[:3] for key in ("code-c1", "code-c4")}
    assert all(
        passes.spec(one, hot, WORK, attempt=1, warm_up=False)["keep_text"] for one in passes.alternating(hot)
    )


def test_an_answers_length_is_the_prompts_own_or_the_designs() -> None:
    work = Workload("x", [Prompt({"text": "a"}), Prompt({"text": "b"}, 7)], fixed=True)
    (found,) = passes.cells([work], [1], [], temperature=0, tokens=64, prompts=2, lossless=False)
    made = design(cells=[found])
    spec = passes.spec(passes.alternating(made)[0], made, work, attempt=1, warm_up=False)
    params = [item["body"]["sampling_params"] for item in spec["requests"]]
    assert [one["max_new_tokens"] for one in params] == [64, 7]
    assert all(one["ignore_eos"] for one in params), "a fixed length is one"


@pytest.mark.parametrize(
    ("concurrency", "prompts", "lossless", "expected"),
    [
        (1, None, False, 8),
        (16, None, False, 32),
        (64, None, False, 64),
        (4, 3, False, 4),  # fewer would be another load
        (1, None, True, 32),
    ],
)
def test_how_many_prompts_a_pass_has(
    concurrency: int, prompts: int | None, lossless: bool, expected: int
) -> None:
    (found,) = passes.cells(
        [WORK], [concurrency], [], temperature=0, tokens=9, prompts=prompts, lossless=lossless
    )
    assert found.prompts == expected


class TestAsked:
    def made(self, *overrides: str, **changed: Any) -> Design:
        profile = load("k26-ddtree", overrides)
        found, _ = designed(profile, ["plain", "tree:32"], **{"concurrency": None, "repeats": 5, **changed})
        return found

    def test_defaults(self) -> None:
        made = self.made()
        assert [one.key for one in made.cells] == ["code-c1"]
        assert (made.temperature, made.own, made.timeout_s) == (0.0, "tree:32", 180.0)
        assert "names none" in asked.temperature_said(load("k26-ddtree"), made, None)

    def test_the_objectives_concurrency_is_among_them(self) -> None:
        assert [one.concurrency for one in self.made("objective.concurrency=8").cells] == [1, 8]
        assert [one.key for one in self.made(rate="0.5,2").cells] == ["code-r0.5", "code-r2"]

    def test_the_profiles_temperature(self) -> None:
        preferred = 'server_args.preferred-sampling-params=\'{"temperature": 0.6, "top_p": 0.95}\''
        assert self.made(preferred).temperature == 0.6
        assert self.made(preferred, temperature=0.0).temperature == 0.0

    def test_more_requests_than_the_server_runs_at_once_is_said(self) -> None:
        profile = load("k26-ddtree")
        made = self.made(concurrency="4,64")
        said = asked.notes(profile, made, {"code": WORK})
        assert any("code-c64: 64 requests a pass of 32 prompts" in word for word in said)
        assert any("code-c64: the server runs 4 requests at once" in word for word in said)

    def test_batches_for_which_no_graph_is_captured_are_said(self) -> None:
        profile = load("k26-ddtree", ["server_args.max-running-requests=16"])
        made = self.made(concurrency="4,8")
        (said,) = [word for word in asked.notes(profile, made, {"code": WORK}) if "graphs" in word]
        assert said.startswith("code-c8: graphs are captured for 4 requests at most")
        assert not any("graphs" in word for word in asked.notes(load("k26-ddtree"), made, {"code": WORK}))

    @pytest.mark.parametrize("text", ["0", "1,1", "a", "1,", "-2", "1.5", "4096", ""])
    def test_no_concurrency(self, text: str) -> None:
        with pytest.raises(UsageError):
            asked.numbers(text, int, "--concurrency")

    def test_bounds(self) -> None:
        assert asked.bounds("ttft=500ms,tpot=20,e2e=3s") == {"ttft": 500.0, "tpot": 20.0, "e2e": 3000.0}
        for text in ("ttft", "itl=3", "ttft=x", "ttft=-1", "ttft=0", "ttft=1.2.3", "tpot=20m"):
            with pytest.raises(UsageError):
                asked.bounds(text)

    def test_two_workloads_of_one_name(self) -> None:
        with pytest.raises(UsageError, match="same name"):
            asked.load_all(["code,chat", "code"], None, 1)

    def test_with_url_an_arm_is_any_name(self) -> None:
        found, _ = designed(load(str(mini.PROFILE)), ["mine", "chain"])
        assert found.own == "chain"


class TestProgress:
    def test_time_left_is_of_measured_passes_and_starts(self) -> None:
        made = design(arms=["plain", "chain"], visits=1, repeats=2)
        planned = passes.visits(made)
        standing = Progress(planned, start_s=10.0)
        assert (standing.done, standing.of, standing.left_s) == (0, 8, None)
        standing.started()
        standing.ended("plain/code-c1/v0/r0", 4.0)
        assert standing.left_s == pytest.approx(7 * 4.0 + 10.0), "what nobody has run counts as the average"
        standing.ended("plain/code-c4/v0/r0", 1.0)
        assert standing.left_s == pytest.approx(4.0 + 1.0 + 2 * 4.0 + 2 * 1.0 + 10.0), "chain as plain did"
        standing.started(3.0)
        standing.ended("chain/code-c1/v0/r0", 2.0)
        standing.ended("chain/code-c1/v0/r0", 2.0)
        assert (standing.done, standing.left_s) == (3, pytest.approx(4.0 + 1.0 + 2.0 + 2 * 1.0))

    def test_a_resumed_run_counts_what_was_done(self) -> None:
        standing = Progress([Visit("chain", 1, passes.visits(design())[0].passes[:2])], 1.0, done=16)
        assert (standing.done, standing.of) == (16, 18)
