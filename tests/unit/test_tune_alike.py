"""A prediction is judged by the answers that are the traced texts; other texts are no error of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from support.bench_run import designed
from support.tuning import TOPK, Machine, texts, trace_lines, traced_pass

from ddtool import profile as profiles
from ddtool.bench.store import Folder
from ddtool.bench.tune import alike, plan, reading
from ddtool.bench.tune.acceptance import Acceptance
from ddtool.bench.tune.answer import answer
from ddtool.bench.tune.found import Found, choice
from ddtool.bench.tune.rounds import Timing
from ddtool.bench.tune.trace import Text
from ddtool.bench.tune.trees import CHAIN, Shape

Json = dict[str, Any]
Change = Callable[[Json], object]
TEXTS = texts(21, 12, 64, 0.62)
OTHERS = texts(22, 12, 64, 0.62)
HARD = texts(23, 1, 64, 0.3)[0]  # takes twice the rounds, like the text of docs/tune.md
ARMS = ["chain", "tree:7", "tree:15", "tree:32"]


def free(width: int, active: int) -> float:
    return 12 + 0.6 * max(0, width - 33)


def found(
    root: Path, forks: Mapping[int, Text], change: Change = lambda sample: None, traced: str = "code"
) -> Found:
    """A run on the files: what the passes said is `forks` where it differs. change: made to each of their samples."""
    machine = Machine(TEXTS, free, noise=0.001, forks=forks)
    design, _ = designed(
        profiles.load("k26-ddtree"), ARMS, concurrency="4", tokens=64, visits=1, temperature=0.0
    )
    lines = [json.loads(line) for line in [*machine.lines(ARMS, [4], 2), *traced_pass(TEXTS, "code-c4")]]
    suffix = traced.removeprefix("code")
    for line in lines:
        line["pass"] = line["pass"].replace("code-c4", f"code-c4{suffix}")
        if line["kind"] == "sample":
            change(line)
    how = {"traced": traced, "workload": "code", "typed": "code", "topk": TOPK, "experts": None}
    about = {"schema": "ddtool.bench.run/1", "run": "fit", "plan": design.to_json(), "how": {"tune": how}}
    path = root / "fit"
    path.mkdir()
    (path / "run.json").write_text(json.dumps(about))
    (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "trace.jsonl").write_text("".join(line + "\n" for line in trace_lines(TEXTS)))
    return reading.found(Folder(path), None)


def told(this: Found) -> tuple[Json, Json]:
    """Checks by name, and rows of accept lengths by budget, those that were measured."""
    load = this.main[0]
    said = answer(this, {}, choice(this, load), load, "")
    json.dumps(said)
    rows = {row["budget"]: row for row in said["acceptance"] if row["measured"] is not None}
    return {check["name"]: check for check in said["checks"]}, rows


def without_digest(sample: Json) -> None:
    del sample["output"]


def test_where_all_texts_are_the_traced_ones_they_are_exactly_as_predicted(tmp_path: Path) -> None:
    checks, rows = told(found(tmp_path, {}))
    assert rows[32]["judged"] == {"off": 0.0, "within": 0.02, "over": "alike", "alike": 24, "answers": 24}
    assert checks["accept length"] == {
        "name": "accept length",
        "ok": True,
        "detail": "0.0% at worst, predicted against measured, over the 96 of 96 answers that are the traced texts "
        "(good up to 2%)",
    }


def test_one_text_that_forked_is_no_error_of_the_prediction(tmp_path: Path) -> None:
    checks, rows = told(found(tmp_path, {5: HARD}))
    assert checks["accept length"]["ok"], checks
    assert "0.0% at worst" in checks["accept length"]["detail"]
    assert "over the 88 of 96 answers that are the traced texts" in checks["accept length"]["detail"]
    row = rows[32]
    assert (row["judged"]["off"], row["judged"]["alike"]) == (0.0, 22)
    assert row["measured"] < 0.98 * row["predicted"], "what is shown is of all answers"


def test_what_the_cost_alone_would_be_off_is_said_beside_what_the_user_sees(tmp_path: Path) -> None:
    this = found(tmp_path, dict.fromkeys(range(6), HARD))
    checks, _ = told(this)
    assert not checks["prediction"]["ok"], (
        "other texts are no error of the cost, but they are what the user gets"
    )
    words = checks["prediction"]["detail"].split()
    off, cost = (float(word.rstrip("%,")) for word in words if word[0] in "+-")
    assert off > 10 and abs(cost) < 1
    assert checks["prediction"]["detail"].startswith(f"{off}% of tok/s at worst, predicted against measured")
    assert "rounds that it really took" in checks["prediction"]["detail"]


def test_a_prediction_that_is_wrong_for_the_same_texts_is_told_from_them(tmp_path: Path) -> None:
    def slower(sample: Json) -> None:
        if not sample["pass"].startswith("trace/"):
            sample["verify_ct"] += max(1, sample["verify_ct"] // 20)

    checks, _ = told(found(tmp_path, {5: HARD}, slower))
    assert not checks["accept length"]["ok"]
    assert "answers that are the traced texts" in checks["accept length"]["detail"]


def test_samples_without_digests_count_all_as_before_and_that_is_said(tmp_path: Path) -> None:
    checks, rows = told(found(tmp_path, {5: HARD}, without_digest))
    assert not checks["accept length"]["ok"]
    assert checks["accept length"]["detail"].endswith(
        "over all answers: the samples do not say which of them are the traced texts (good up to 2%)"
    )
    row = rows[32]["judged"]
    assert (row["over"], row["alike"], row["within"]) == ("all", None, 0.02)
    assert row["off"] == pytest.approx(rows[32]["predicted"] / rows[32]["measured"] - 1, abs=1e-4)


def test_a_pass_of_an_older_client_beside_a_traced_one_of_this(tmp_path: Path) -> None:
    def older(sample: Json) -> None:
        if sample["pass"].startswith("chain/"):
            del sample["output"]

    checks, rows = told(found(tmp_path, {}, older))
    assert (rows[0]["judged"]["over"], rows[7]["judged"]["over"]) == ("all", "alike")
    assert checks["accept length"]["ok"]
    assert checks["accept length"]["detail"].count("at worst") == 2


def test_where_too_few_texts_are_alike_all_are_judged_by_how_far_prompts_are_apart(tmp_path: Path) -> None:
    other = dict(enumerate(OTHERS))
    del other[3]
    checks, rows = told(found(tmp_path, other))
    detail = checks["accept length"]["detail"]
    assert "over all answers, since only 8 of 96 are the traced texts" in detail
    assert detail.endswith("4 standard errors)")
    assert checks["accept length"]["ok"], detail
    row = rows[32]["judged"]
    assert (row["over"], row["alike"]) == ("all", 2)
    assert 0.02 < row["within"] < 0.25


def test_sampled_texts_differ_by_design_whether_the_samples_tell_or_not(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    new, _ = told(found(tmp_path / "new", dict(enumerate(OTHERS)), traced="code-t1"))
    old, _ = told(found(tmp_path / "old", dict(enumerate(OTHERS)), without_digest, traced="code-t1"))
    for checks in (new, old):
        assert checks["accept length"]["ok"]
        assert "4 standard errors" in checks["accept length"]["detail"]
    assert "only 0 of 96" in new["accept length"]["detail"]
    assert "do not say" in old["accept length"]["detail"]


def test_other_texts_that_are_much_harder_are_more_than_chance(tmp_path: Path) -> None:
    harder = dict(enumerate(texts(24, 12, 64, 0.3)))
    checks, _ = told(found(tmp_path, harder))
    assert not checks["accept length"]["ok"]


def test_the_same_answer_to_another_prompt_is_another_text(tmp_path: Path) -> None:
    def elsewhere(sample: Json) -> None:
        if not sample["pass"].startswith("trace/"):
            sample["prompt"] = "f" * 16

    _, rows = told(found(tmp_path, {}, elsewhere))
    assert rows[32]["judged"]["alike"] == 0


def test_a_traced_text_that_is_not_its_samples_is_taken_for_none(tmp_path: Path) -> None:
    """Requests that are sent at once may reach the server in another order; then a place tells nothing."""

    def moved(sample: Json) -> None:
        if sample["pass"].startswith("trace/") and sample["index"] in (3, 4):
            sample["prompt_tokens"] += 1

    this = found(tmp_path, {}, moved)
    assert len(this.predictor.acceptance.numbers) == len(TEXTS) - 2
    assert (
        alike.judged(this.predictor.acceptance, Shape(32, 8), runs(this, Shape(32, 8)), sampled=False).alike
        == 20
    )


def test_a_quarter_is_enough_and_less_is_not(tmp_path: Path) -> None:
    for count, by_text in ((9, True), (10, False)):
        root = tmp_path / str(count)
        root.mkdir()
        this = found(root, {number: OTHERS[number] for number in range(count)})
        one = alike.judged(this.predictor.acceptance, CHAIN, runs(this, CHAIN), sampled=False)
        assert (one.by_text, one.alike) == (by_text, 24 - 2 * count)


def test_right_predictions_of_other_texts_seldom_fail() -> None:
    """Of nine arms all pass, nearly always; and the bound is no wider than it has to be for twelve short texts."""
    shapes = [CHAIN, *(Shape(budget, TOPK) for budget in (7, 9, 11, 13, 15, 19, 23, 32))]
    said = [Acceptance(texts(seed, 12, 40, 0.62), 32) for seed in range(12)]
    dice, failed, widths = random.Random(4), 0, []
    for _ in range(60):
        traced, *others = dice.choices(said, k=1 + len(shapes))
        ones = [
            alike.judged(traced, shape, [sampled_pass(other, shape)], sampled=True)
            for shape, other in zip(shapes, others, strict=True)
        ]
        failed += any(abs(one.off) > one.within for one in ones)
        widths += [one.within for one in ones]
    assert failed <= 4
    assert fmean(widths) < 0.25


def sampled_pass(said: Acceptance, shape: Shape) -> Timing:
    rounds, tokens = said.rounds(shape), [len(text.ids) for text in said.texts]
    name = [(f"{number:016x}", None) for number in range(len(tokens))]
    return Timing(
        "tree", shape, 4, 100, "code-t1", 0, 0, 10.0, 1.0, tuple(rounds), tuple(tokens), tuple(name), {}
    )


def runs(this: Found, shape: Shape) -> list[Any]:
    return [one for one in this.timings if one.shape == shape]


def test_the_traced_arm_is_no_arm(tmp_path: Path) -> None:
    assert plan.TRACE not in {one.arm for one in found(tmp_path, {}).timings}
