"""From a run's files to the answer: JSON, tables, the overlay that `profile validate` accepts; and what is planned."""

from __future__ import annotations

import json
import pickle
import zipfile
from functools import partial
from pathlib import Path

import pytest
from support import tuned_run
from support.bench_run import designed
from support.cli import data, ddtool
from support.tuned_run import FITTED, free

from ddtool import profile as profiles
from ddtool.bench import arms, asked, passes
from ddtool.bench.tune import overlay, plan
from ddtool.bench.tune.experts import read_dump
from ddtool.bench.tune.trees import CHAIN, Shape
from ddtool.errors import DdtoolError, UsageError


def steep(width: int, active: int) -> float:
    return 4 + 1.2 * width


@pytest.fixture
def tuned(tmp_path):
    return partial(tuned_run.tuned, tmp_path)


def told(*words: object) -> dict:
    return data("tune", "--from", *map(str, words))


def test_a_tree_is_recommended_with_its_overlay(tuned, tmp_path):
    path, out = (
        tuned(free, ["chain", "tree:23", "tree:32", "tree:45"], loads=(1, 4)),
        tmp_path / "overlay.yaml",
    )
    said = told(path, "--out", out)
    assert said["schema"] == "ddtool.tune/1"
    best = said["recommendation"]
    assert best["arm"] == "tree:32"
    assert best["concurrency"] == 1
    assert best["gain_over_chain"] > 0.1
    assert all(check["ok"] for check in said["checks"]), said["checks"]
    assert {check["name"] for check in said["checks"]} == {
        "fit",
        "accept length",
        "prediction",
        "recommendation",
    }
    made = profiles.load(str(out))
    assert (made.speculative.algorithm, made.speculative.budget, made.speculative.topk) == ("DDTREE", 32, 8)
    assert out.read_text() == best["overlay"]
    assert out.read_text().startswith("# use the tree: budget 32, top-k 8 is measured +")
    assert "#   tree:32: " in out.read_text()
    assert ddtool("profile", "validate", str(out)).returncode == 0


def test_rows_are_what_the_reports_draw(tuned):
    said = told(tuned(free, loads=(1, 4)))
    assert {(row["concurrency"], row["width"]) for row in said["verify"]} == {
        (load, width) for load in (1, 4) for width in plan.STEPS
    }
    for row in said["verify"]:
        assert row["round_ms"] == pytest.approx(free(row["width"], 1) + 0.3, rel=0.03)
        assert row["fitted_ms"] == pytest.approx(row["verify_ms"], rel=0.1)
    rows = {(row["budget"], row["topk"]): row for row in said["acceptance"]}
    assert rows[0, 0]["measured"] == pytest.approx(rows[0, 0]["predicted"], rel=0.001)
    assert rows[32, 8]["measured"] == pytest.approx(rows[32, 8]["predicted"], rel=0.001)
    assert rows[40, 8]["measured"] is None
    assert {row["arm"] for row in said["predicted"]} >= {"chain", "tree:32", "tree:16:4"}
    assert {row["arm"] for row in said["measured"]} == set(FITTED)
    assert [row["concurrency"] for row in said["by_load"]] == [1, 4]
    assert {row["step"] for row in said["split"]} == {"draft, verify and host"}
    assert said["experts"] is None


def test_where_a_wider_verify_is_dear_the_chain_is_recommended_and_said(tuned, tmp_path):
    path, out = (
        tuned(steep, ["chain", "tree:7", "tree:10", "tree:14"], tree_ms=3.0),
        tmp_path / "overlay.yaml",
    )
    said = told(path, "--out", out)
    assert said["recommendation"]["arm"] == "chain"
    assert said["recommendation"]["why"].startswith("use the chain: no tree is faster here")
    assert said["recommendation"]["gain_over_chain"] == 0
    made = profiles.load(str(out))
    assert (made.speculative.algorithm, made.speculative.budget, made.engine.provider) == (
        "DFLASH",
        None,
        "builtin",
    )
    assert ddtool("profile", "validate", str(out)).returncode == 0


def test_a_person_reads_tables(tuned):
    done = ddtool("tune", "--from", str(tuned(free)), env={"COLUMNS": "100"})
    assert done.returncode == 0, done.stderr
    for words in ("use the tree: budget", "tokens a round", "fitted"):
        assert words in done.stdout


def test_a_run_without_a_trace_is_refused(tuned):
    path = tuned(free)
    (path / "trace.jsonl").unlink()
    done = ddtool("tune", "--from", str(path))
    assert done.returncode == 2
    assert "no trace" in done.stderr


def test_a_run_whose_chain_failed_or_whose_trace_is_empty_says_so(tuned):
    path = tuned(free)
    samples = (path / "samples.jsonl").read_text()
    broken = samples.replace('"error": null', '"error": "gone"', 1)  # the chain's first request
    (path / "samples.jsonl").write_text(broken)
    assert told(path)["recommendation"]["arm"] == "tree:32", "its other pass is whole"
    (path / "samples.jsonl").write_text(
        "\n".join(line for line in samples.split("\n") if "chain/" not in line)
    )
    done = ddtool("tune", "--from", str(path))
    assert done.returncode == 1
    assert "the chain has no whole pass over code" in done.stderr
    (path / "samples.jsonl").write_text(samples)
    (path / "trace.jsonl").write_text("")
    done = ddtool("tune", "--from", str(path))
    assert done.returncode == 1
    assert "no round of a completion" in done.stderr


def test_experts_are_the_bound_until_they_were_counted(tuned):
    path = tuned(free)
    about = json.loads((path / "run.json").read_text())
    about["how"]["tune"]["experts"] = [384, 8]
    (path / "run.json").write_text(json.dumps(about))
    bound = told(path)
    rows = {row["width"]: row for row in bound["experts"]}
    assert rows[1]["distinct"] == 8
    assert rows[33]["distinct"] == rows[33]["independent"] == pytest.approx(192, abs=1)
    assert rows[33]["bound"]
    assert any("not measured" in warning for warning in bound["warnings"])
    (path / "experts.json").write_text(json.dumps({"8": 40.0, "33": 120.0, "65": 180.0}))
    counted = {row["width"]: row for row in told(path)["experts"]}
    assert counted[33]["distinct"] == 120.0
    assert not counted[33]["bound"]


class TestPlan:
    profile = profiles.load("k26-ddtree")

    def test_eight_widths_from_the_block_on(self):
        assert plan.widths(None, 8) == [8, 12, 16, 20, 24, 33, 48, 65]
        assert plan.widths(None, 16) == [16, 20, 24, 33, 48, 65]
        assert plan.widths("33,8", 8) == [8, 33]
        assert plan.arms([8, 33]) == ["chain", "tree:7", "tree:32"]

    @pytest.mark.parametrize("typed", ["33", "7,33", "8,x", "8,8", ""])
    def test_impossible_widths(self, typed):
        with pytest.raises(UsageError):
            plan.widths(typed, 8)

    def test_the_trace_is_one_pass_of_the_cheapest_tree_with_its_switches(self):
        design, _ = designed(self.profile, ["chain"])
        visit = plan.traced_visit(design, "code")
        (one,) = visit.passes
        assert one.ident.startswith("trace/code-c")
        arm = plan.traced_arm(self.profile, "/state/trace.jsonl")
        assert (arm.budget, arm.topk) == (7, 8)
        traced = arms.profile_of(arm, self.profile)
        assert traced.env["DDTOOL_ENGINE_TRACE"] == "verify-trace:/state/trace.jsonl,every-token"
        assert passes.specs(visit.passes, design, {"code": asked.load_all(["code"], None, 1)["code"]}, {})

    def test_contexts_are_synthetic_prompts(self):
        assert plan.workloads("code", [512, 4096], 128) == ["code", "synthetic:512:128", "synthetic:4096:128"]

    def test_experts_of_known_checkpoints(self):
        kimi = {"text_config": {"n_routed_experts": 384, "num_experts_per_tok": 8}}
        assert plan.experts_of(kimi).count == 384
        assert plan.experts_of({"num_experts": 128, "num_experts_per_tok": 8}).chosen == 8
        assert plan.experts_of({"hidden_size": 4}) is None


class TestOverlay:
    def write(self, path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
        return path

    @pytest.mark.parametrize("name", ["k26-ddtree", "k26-dflash", "demo"])
    @pytest.mark.parametrize("shape", [CHAIN, Shape(16, 4)])
    def test_every_packaged_profile_can_be_extended(self, name, shape, tmp_path):
        profile = profiles.load(name)
        out = tmp_path / "overlay.yaml"
        out.write_text(overlay.text(profile, shape, ["because"], out))
        made = profiles.load(str(out))
        assert made.speculative.algorithm == ("DFLASH" if shape.is_chain else "DDTREE")
        assert made.speculative.budget == (None if shape.is_chain else 16)
        assert made.service == profile.service
        assert made.server_args == profile.server_args
        assert made.model == profile.model

    def test_a_profile_of_ones_own_is_extended_by_its_path(self, tmp_path):
        own = self.write(tmp_path / "mine" / "fast.yaml", "extends: k26-ddtree\nservice:\n  port: 31000\n")
        out = tmp_path / "elsewhere" / "overlay.yaml"
        text = overlay.text(profiles.load(str(own)), Shape(16, 8), ["a", "", "b"], out)
        assert text.startswith("# a\n#\n# b\nextends: k26-ddtree\n")
        made = profiles.load(str(self.write(out, text)))
        assert (made.service.port, made.speculative.budget) == (31000, 16)

    def test_a_base_beside_the_profile_is_found_from_elsewhere(self, tmp_path):
        base = Path(profiles.load("k26-ddtree").source).read_text()
        self.write(tmp_path / "mine" / "base.yaml", base)
        own = self.write(tmp_path / "mine" / "fast.yaml", "extends: base\nservice:\n  port: 31000\n")
        whole = self.write(tmp_path / "mine" / "whole.yaml", base)
        for source in (own, whole):
            out = tmp_path / "elsewhere" / "overlay.yaml"
            text = overlay.text(profiles.load(str(source)), Shape(16, 8), [], out)
            assert profiles.load(str(self.write(out, text))).speculative.budget == 16


class TestDump:
    """Archives as torch.save writes them, made without torch."""

    def dump(self, path: Path, code: bytes, data: bytes = b"") -> Path:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", code)
            archive.writestr("archive/data/0", data)
        return path

    def test_nothing_that_a_pickle_asks_for_is_run(self, tmp_path):
        class Evil:
            def __reduce__(self):
                return print, ("gone",)

        with pytest.raises(DdtoolError, match=r"no dump.*") as error:
            read_dump(self.dump(tmp_path / "a.pt", pickle.dumps({"records": [Evil()]})), 9)
        assert "builtins.print" in (error.value.why or "")

    def test_other_files_are_refused(self, tmp_path):
        (tmp_path / "a.pt").write_bytes(b"no archive")
        with pytest.raises(DdtoolError, match="no dump"):
            read_dump(tmp_path / "a.pt", 9)
        with pytest.raises(DdtoolError, match="no dump"):
            read_dump(self.dump(tmp_path / "b.pt", pickle.dumps({"other": 1})), 9)
