"""What `tune --from` says of runs that are less than they look: cut files, unquiet machines, failed predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import tuned_run
from support.cli import here
from support.tuned_run import free

Json = dict[str, Any]
ARMS = ["chain", "tree:23", "tree:32", "tree:45"]


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., Path]:
    def made(*words: Any, root: str = "runs", **more: Any) -> Path:
        return tuned_run.tuned(tmp_path / root, *words, **more)

    return made


def told(path: Path, *words: str) -> Json:
    done = here("tune", "--from", str(path), *words, "--json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


def rewritten(path: Path, change: Any) -> None:
    """Every line of a run's samples as `change` leaves it."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class TestRecommendation:
    def check(self, path: Path) -> Json:
        (found,) = (one for one in told(path)["checks"] if one["name"] == "recommendation")
        return found

    def test_the_worst_load_is_judged_and_what_the_prediction_alone_would_have_cost(
        self, tuned: Callable[..., Path]
    ) -> None:
        def kneed(width: int, active: int) -> float:
            """What the fit did not see: several wide trees together are dear."""
            return free(width, active) * (1.5 if width > 28 and active > 1 else 1)

        guess = told(tuned(free, loads=(1, 4), root="fit alone"))["by_load"][1]["best_tree"]
        found = self.check(tuned(free, [*ARMS, guess], loads=(1, 4), again=kneed))
        assert found["ok"]
        final, _, alone = found["detail"].partition("; by prediction alone ")
        assert final.endswith(" is 0.0% below the best arm verified (good up to 3%)")
        arm, _, lost = alone.rpartition(", ")
        assert arm == f"{guess} at concurrency 4"
        assert 15 < float(lost.removesuffix("% below")) < 40

    def test_a_later_load_can_fail_it(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS, loads=(1, 4))

        def now_and_then_slow(line: Json) -> None:
            if line["kind"] == "end" and line["pass"] in {f"tree:32/code-c4/v0/r{n}" for n in (0, 1)}:
                line["seconds"] *= 9

        def slow(line: Json) -> None:
            if line["kind"] == "end" and line["pass"].startswith(("tree:23/code-c4", "tree:45/code-c4")):
                line["seconds"] *= 2

        rewritten(path.parent / tuned_run.VERIFIED / "samples.jsonl", now_and_then_slow)
        rewritten(path.parent / tuned_run.VERIFIED / "samples.jsonl", slow)
        found = self.check(path)
        assert not found["ok"], found
        assert found["detail"].startswith("chain at concurrency 4 is ")


def warned(path: Path) -> list[str]:
    found: list[str] = told(path)["warnings"]
    assert len(set(found)) == len(found)
    return found


def cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


class TestWhatBenchWarnsOf:
    def test_a_quiet_whole_run_has_no_warning(self, tuned: Callable[..., Path]) -> None:
        assert warned(tuned(free, ARMS)) == []
        assert warned(tuned(free, root="fit alone")) == []

    def test_repeats_that_lie_apart_and_drift(self, tuned: Callable[..., Path], tmp_path: Path) -> None:
        def slower_each_time(line: Json) -> None:
            if line["kind"] == "begin":
                line["unix"] = float(line["pass"][-1])
            if line["kind"] == "end" and line["pass"].startswith("tree:23/"):
                line["seconds"] *= 1.1 ** int(line["pass"][-1])

        path = tuned(free, ARMS)
        rewritten(path.parent / tuned_run.VERIFIED / "samples.jsonl", slower_each_time)
        unquiet, drifting = warned(path)
        assert unquiet.startswith("code-c1: repeats of tok/s lie far apart, "), unquiet
        assert unquiet.endswith("% in tree:23: the machine was not quiet"), unquiet
        assert drifting.startswith("code-c1: tree:23: tok/s drifts by -"), drifting
        report = tmp_path / "report.html"
        told(path, "--report", str(report))
        assert report.read_text().count("tree:23: tok/s drifts by") == 1

    def test_without_a_verification_the_fit_is_judged(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, repeats=3)

        def late(line: Json) -> None:
            if line["kind"] == "end" and line["pass"] == "tree:15/code-c1/v0/r2":
                line["seconds"] *= 2

        rewritten(path / "samples.jsonl", late)
        (unquiet,) = warned(path)
        assert unquiet.startswith("code-c1: repeats of tok/s lie far apart, ") and "in tree:15" in unquiet

    def test_starts_that_differ_are_told_beside_the_interval_too(self, tuned: Callable[..., Path]) -> None:
        def two_starts(line: Json) -> None:
            number = int(line["pass"][-1])
            line["pass"] = f"{line['pass'][:-5]}v{number // 3}/r{number % 3}"
            if line["kind"] == "end" and line["pass"].startswith("tree:32/code-c1/v1"):
                line["seconds"] *= 1.08

        path = tuned(free, ARMS)
        verify = path.parent / tuned_run.VERIFIED
        rewritten(verify / "samples.jsonl", two_starts)
        about = json.loads((verify / "run.json").read_text())
        about["plan"] |= {"visits": 2, "repeats": 3}
        (verify / "run.json").write_text(json.dumps(about))
        (differ,) = warned(path)
        assert differ.startswith("code-c1: the ratio of tree:32 to chain differs between server starts")
        assert told(path)["recommendation"]["why"].endswith("% and more between server starts")


class TestCutFiles:
    @pytest.mark.parametrize("share", [0.5, 0.999])
    def test_a_verification_whose_run_json_is_cut(self, tuned: Callable[..., Path], share: float) -> None:
        path = tuned(free, ARMS)
        cut(path.parent / tuned_run.VERIFIED / "run.json", share)
        (said,) = warned(path)
        assert said.startswith(f"{tuned_run.VERIFIED} cannot be read, and may be the verification: ")
        assert "run.json is not JSON" in said

    def test_a_verification_that_is_no_run(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS)
        about = path.parent / tuned_run.VERIFIED / "run.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "plan": {}}))
        (said,) = warned(path)
        assert said.startswith(
            f"the verification {tuned_run.VERIFIED} cannot be read: the run's plan is none"
        )

    def test_a_fit_without_its_plan_is_no_traceback(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free)
        about = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**about, "plan": {}}))
        done = here("tune", "--from", str(path))
        assert done.returncode == 2
        assert "the run's plan is none of this ddtool" in done.stderr

    def test_a_broken_run_that_is_older_is_no_verification(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS)
        older = path.parent / "20200101-000000-0000"
        older.mkdir()
        (older / "run.json").write_text("{")
        assert warned(path) == []

    def test_a_verification_is_found_from_within_the_folder(
        self, tuned: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tuned(free, ARMS))
        assert "is measured" in told(Path())["recommendation"]["why"]

    def test_samples_of_a_verification(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS)
        samples = path.parent / tuned_run.VERIFIED / "samples.jsonl"
        cut(samples)
        (said,) = warned(path)
        assert said.startswith("the verification has ") and said.endswith(" of 24 passes whole")
        samples.unlink()
        assert warned(path) == ["the verification has 0 of 24 passes whole"]
        assert "is predicted" in told(path)["recommendation"]["why"]

    def test_samples_of_the_fit(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS)
        samples = path / "samples.jsonl"
        lines = samples.read_text().splitlines(keepends=True)
        gone = "tree:64/code-c1/v0/r1"
        samples.write_text("".join(line for line in lines if gone not in line))
        assert warned(path) == ["the fit has 17 of 18 passes whole"]
        samples.write_text(
            "".join(line for line in lines if f'"{gone}"' not in line or '"index": 7' not in line)
        )
        assert warned(path) == ["the fit has 17 of 18 passes whole"], "a pass without one of its requests"
        samples.write_text("".join(lines[:-1]))
        (said,) = warned(path)
        assert said.startswith("the fit has no traced pass whole")

    def test_the_trace(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free, ARMS)
        lines = (path / "trace.jsonl").read_text().splitlines(keepends=True)
        (path / "trace.jsonl").write_text("".join(lines[:-1]))
        assert warned(path) == ["the trace has 11 texts whole, and the traced pass 12"]
        cut(path / "trace.jsonl")
        (said, *_) = warned(path)
        assert said.endswith(" texts whole, and the traced pass 12")

    def test_a_packed_trace_is_unpacked_first(self, tuned: Callable[..., Path]) -> None:
        path = tuned(free)
        (path / "trace.jsonl").rename(path / "trace.jsonl.xz")
        done = here("tune", "--from", str(path))
        assert done.returncode == 2
        assert f"next: xz -dk {path}/trace.jsonl.xz" in done.stderr

    @pytest.mark.parametrize("text", ['{"8": 40', "[]", '{"eight": 40}', '{"8": null}'])
    def test_a_count_of_experts(self, text: str, tuned: Callable[..., Path]) -> None:
        path = tuned(free)
        about = json.loads((path / "run.json").read_text())
        about["how"]["tune"]["experts"] = [384, 8]
        (path / "run.json").write_text(json.dumps(about))
        (path / "experts.json").write_text(text)
        done = here("tune", "--from", str(path), "--json")
        said = json.loads(done.stdout)["error"]
        assert done.returncode == 1
        assert "experts.json does not say how many experts" in said["message"]
        assert said["hint"].startswith(f"mv {path}/experts.json ")


class TestOverlay:
    @pytest.mark.parametrize("named", [None, "gone-for-good"])
    def test_out_without_the_profile_is_refused_before_anything_is_written(
        self, named: str | None, tuned: Callable[..., Path], tmp_path: Path
    ) -> None:
        path, out, report = tuned(free), tmp_path / "out.yaml", tmp_path / "report.html"
        about = json.loads((path / "run.json").read_text())
        about["how"]["profile"] = named
        (path / "run.json").write_text(json.dumps(about))
        done = here("tune", "--from", str(path), "--out", str(out), "--report", str(report))
        assert done.returncode == 2
        assert "would extend the profile that was tuned" in done.stderr
        assert f"next: ddtool tune PROFILE --from {path} --out {out}" in done.stderr
        assert not out.exists() and not report.exists()
        assert told(path)["recommendation"]["overlay"] == "", "the answer itself needs no profile"
        assert here("tune", "k26-ddtree", "--from", str(path), "--out", str(out)).returncode == 0
        assert "extends: k26-ddtree" in out.read_text()
