"""One trace, every budget: the heap, the walk along a text, and what is said where drafts are missing."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import best_first as reference
from support.tuning import texts, trace_lines

from ddtool.bench.tune import trace
from ddtool.bench.tune.acceptance import Acceptance, roots
from ddtool.bench.tune.trace import Text
from ddtool.bench.tune.trees import CHAIN, Draft, Shape, best_first, chain_takes, exact_costs, needs
from ddtool.errors import DdtoolError


def draft(*rows: list[tuple[float, int]]) -> Draft:
    """Rows of (probability, token)."""
    return Draft(
        [[math.log(p) for p, _ in row] for row in rows], [[token for _, token in row] for row in rows]
    )


TWO = draft([(0.6, 1), (0.3, 2)], [(0.7, 3), (0.2, 4)])
# scores: 1 .6 | 1,3 .42 | 2 .3 | 2,3 .21 | 1,4 .12 | 2,4 .06


def test_nodes_come_in_the_order_of_their_probability():
    assert list(best_first(exact_costs(TWO.logprobs), 9)) == [(0,), (0, 0), (1,), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("truth", "expected"),
    [([1, 3, 9], (1, 2)), ([2, 3], (3, 4)), ([1, 4], (1, 5)), ([2, 4], (3, 6)), ([9], ()), ([2, 9], (3,))],
)
def test_needs_are_the_budgets_from_which_on_the_text_is_in_the_tree(truth, expected):
    assert needs(TWO, truth, 2, 9) == expected
    assert needs(TWO, truth, 2, 4) == tuple(need for need in expected if need <= 4)


def test_a_smaller_topk_is_the_same_draft_with_fewer_choices():
    assert needs(TWO, [1, 3], 1, 9) == (1, 2)
    assert needs(TWO, [2, 3], 1, 9) == ()


@pytest.mark.parametrize(("truth", "taken"), [([1, 3], 2), ([1, 4], 1), ([2, 3], 0), ([1], 1), ([], 0)])
def test_the_chain_takes_the_first_choices_that_are_right(truth, taken):
    assert chain_takes(TWO, truth) == taken


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, -0.1, -0.5, -1.0, -70.0, -math.inf, math.nan]), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 40),
)
def test_the_heap_is_the_papers_with_ties_by_depth_and_rank(rows, budget):
    rows = [
        sorted(row, key=lambda value: -100.0 if math.isnan(value) else max(value, -64.0), reverse=True)
        for row in rows
    ]
    costs = exact_costs(rows)
    known = [[-64.0 if math.isnan(value) else value for value in row] for row in rows]
    assert costs == reference.exact_costs(known)
    assert list(best_first(costs, budget)) == reference.best_first(costs, budget)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.3, 0.9))
def test_more_budget_never_takes_less_from_the_same_root_and_one_choice_is_the_chain(seed, sharp):
    (text,) = texts(seed, 1, 12, sharp)
    for root, said in text.drafts.items():
        truth = text.ids[root + 1 :]
        taken = [sum(need <= budget for need in needs(said, truth, 8, 64)) for budget in range(65)]
        assert taken == sorted(taken)
        assert len(needs(said, truth, 8, 400)) >= len(needs(said, truth, 1, 400)) == chain_takes(said, truth)


def test_rounds_go_from_where_the_last_one_ended_and_prefills_token_counts():
    """Text 7 1 3 5 4: from 7 the chain takes 1 and 3, and the round gives 5 too; from 5 nothing but 4."""
    other = draft([(0.9, 8), (0.1, 4)], [(0.9, 8), (0.1, 9)])
    text = Text((7, 1, 3, 5, 4), {0: TWO, 1: other, 2: other, 3: other})
    said = Acceptance([text], 8)
    assert said.is_exact
    assert said.rounds(CHAIN) == [2]
    assert said.length(CHAIN) == 5 / 2
    assert said.rounds(Shape(1, 2)) == [3]  # 1, 3 | 5 | 4: the tree of one node is the first choice alone
    assert list(roots(text, {0: 1, 1: 0, 2: 0, 3: 0})) == [0, 2, 3]
    assert said.by_depth(CHAIN) == [0.5, 0.5]


def test_a_text_ends_where_it_ends_whatever_the_tree_has_beyond():
    text = Text((7, 1), {0: TWO})
    assert Acceptance([text], 8).rounds(Shape(6, 2)) == [1]


def test_where_drafts_are_missing_the_mean_over_the_others_is_said():
    whole = texts(3, 20, 120)
    full = Acceptance(whole, 64)
    thin = [
        Text(text.ids, {root: said for root, said in text.drafts.items() if root % 3 == 0}) for text in whole
    ]
    sparse = Acceptance(thin, 64)
    assert not sparse.is_exact
    for shape in (CHAIN, Shape(8, 8), Shape(32, 8)):
        assert sparse.length(shape) == pytest.approx(full.length(shape), rel=0.05)


def test_what_is_beyond_the_trace_is_not_guessed():
    said = Acceptance(texts(1, 2, 20), 16)
    with pytest.raises(ValueError, match="budget 16"):
        said.length(Shape(17, 8))
    with pytest.raises(ValueError, match="top-k 8"):
        said.length(Shape(8, 9))


def test_the_error_shrinks_with_the_number_of_texts():
    shape = Shape(32, 8)
    few = [Acceptance(texts(seed, 6, 40), 32).error(shape) for seed in range(6)]
    many = Acceptance(texts(1, 40, 40), 32)
    assert many.error(shape) < sum(few) / len(few)
    assert Acceptance(texts(1, 1, 100), 32).error(shape) == 1.0


def test_an_error_is_as_large_as_other_texts_make_it():
    shape = Shape(16, 8)
    lengths = [Acceptance(texts(seed, 10, 40), 16).length(shape) for seed in range(40)]
    mean = sum(lengths) / len(lengths)
    spread = math.sqrt(sum((length - mean) ** 2 for length in lengths) / len(lengths)) / mean
    told = [Acceptance(texts(seed, 10, 40), 16).error(shape) for seed in range(10)]
    assert sum(told) / len(told) == pytest.approx(spread, rel=0.35)


class TestTrace:
    def test_a_trace_of_every_token_is_its_own_text(self):
        expected = texts(5, 3, 20)
        assert trace.read(trace_lines(expected)) == expected

    def test_rounds_of_one_budget_join_to_the_text(self):
        said = {"logprobs": TWO.logprobs, "ids": TWO.ids}
        lines = [
            {"rid": "a", "position": 4, "root": 7, "path_ranks": [0, 1], "bonus": 5, **said},
            {"rid": "a", "position": 7, "root": 5, "path_ranks": [], "bonus": 6, **said},
        ]
        (text,) = trace.read(map(json.dumps, lines))
        assert text.ids == (7, 1, 4, 5, 6)
        assert sorted(text.drafts) == [0, 3]
        assert not text.is_dense

    def test_a_torn_last_line_is_left_out_and_one_in_the_middle_is_an_error(self):
        lines = list(trace_lines(texts(5, 1, 20)))
        (text,) = trace.read([*lines[:-1], lines[-1][:40]])
        assert len(text.ids) == 19
        with pytest.raises(DdtoolError, match="line 3 of the trace"):
            trace.read([*lines[:2], lines[2][:40], *lines[3:]])

    def test_an_older_engines_trace_is_refused_with_what_it_lacks(self):
        lines = []
        for line in trace_lines(texts(5, 1, 20)):
            record = json.loads(line)
            del record["bonus"]
            lines.append(json.dumps(record))
        with pytest.raises(DdtoolError, match="bonus"):
            trace.read(lines)

    def test_a_request_that_began_again_keeps_what_came_before(self):
        lines = list(trace_lines(texts(5, 1, 20)))
        (text,) = trace.read([*lines, lines[0]])
        assert len(text.ids) == 20
