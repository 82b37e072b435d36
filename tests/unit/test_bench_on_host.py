"""The plan of a run on the host: which servers in which order, what it costs, what the host is sent. Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support.bench_run import designed

from ddtool.agent.bench_steps import with_prompts
from ddtool.bench import arms as all_arms
from ddtool.bench import fingerprint, host_judge, on_host, passes, run, store, taint
from ddtool.bench.host_run import numbered
from ddtool.bench.on_host import Built, Measurement
from ddtool.bench.store import Folder
from ddtool.bench.tune import plan as plan_of_tuning
from ddtool.deploy import session
from ddtool.deploy.deployment import Deployment
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.plan import Plan
from ddtool.errors import UsageError
from ddtool.profile import Profile, load

from .test_plan import SALT, STATE, deployed_facts, release_of

RUN = "/run/ddtool"


@pytest.fixture
def profile() -> Profile:
    return load(str(mini.PROFILE))


@pytest.fixture
def facts(profile: Profile) -> dict[str, Any]:
    return deployed_facts(profile, assumed_facts(profile))


def measurement(
    profile: Profile, facts: dict[str, Any], done: tuple[str, ...] = (), **changed: Any
) -> Measurement:
    names = ["plain", "chain"]
    design, loaded = designed(profile, names, **changed)
    built: dict[str, Built] = {}
    current = next((item for item in facts["releases"] if item["role"] == "current"), None)
    for name in names:
        arm = all_arms.parse(name, profile)
        made = all_arms.profile_of(arm, profile)
        release = release_of(made)
        present = current is not None and current["digest"] == release.digest
        ident = current["id"] if present and current else numbered(facts, release, len(built))
        built[name] = Built(arm, made, release, ident, present)
    about = run.begin(design, profile=profile.name, host="h", workloads=["code"], fingerprint={})
    left = passes.without(passes.visits(design), done)
    return Measurement(profile, design, loaded, built, facts, about, left, {}, STATE, RUN, SALT)


def kinds(plan: Plan) -> list[str]:
    return [step["step"] for step in plan.steps]


VISIT = ["files", "start", "bench", "stop"]


def test_every_visit_is_a_start_in_one_transaction(profile: Profile, facts: dict[str, Any]) -> None:
    plan = on_host.plan(measurement(profile, facts), 1.0)
    assert kinds(plan) == ["safeguard", "release", "stop", *VISIT * 4]
    assert plan.steps[2]["restore"] and not any(step.get("restore") for step in plan.steps[3:])
    releases = [step["release"] for step in plan.steps if step["step"] == "bench"]
    own, new = facts["releases"][0]["id"], plan.steps[1]["id"]
    assert releases == [new, own, own, new] and new > own
    chosen = [step for step in plan.steps if step["step"] == "files"]
    for step, ident in zip(chosen, releases, strict=True):
        unit, record, *rest = step["files"]
        assert f"releases/{ident}" in base64.b64decode(unit["content"]).decode()
        assert json.loads(base64.b64decode(record["content"]))["current"] == ident
        assert bool(rest) == (step is chosen[0]), "the drop-in against restarts and reboots comes first"
    assert chosen[0]["files"][0]["expect"] is not None, "somebody's edit since the plan is not overwritten"


def test_what_the_plan_says_of_the_outage(profile: Profile, facts: dict[str, Any]) -> None:
    this = measurement(profile, facts)
    plan = on_host.plan(this, 1.0)
    passes_s, warm_ups_s = 4 * 2 * (8 + 2) * 12 / on_host.TOK_S, 4 * (12 + 12) / on_host.TOK_S
    assert plan.outage.seconds == pytest.approx(5 * 44.0 + passes_s + warm_ups_s)
    cold = replace(this, design=replace(this.design, warmup=False))
    assert on_host.plan(cold, 1.0).outage.seconds == pytest.approx(5 * 44.0 + passes_s)
    assert "4 starts and one to put it back, 44 s each" in plan.outage.source
    assert "16 passes" in plan.outage.source and "assumed" in plan.outage.source
    words = " ".join(f"{change.what} {change.detail}" for change in plan.changes)
    assert "in this order: plain chain chain plain" in words and "start it again as it was" in words
    facts["service"]["unit"]["processes"] = []
    stopped = on_host.plan(measurement(profile, facts), 1.0)
    assert stopped.outage.seconds == 0 and "leave it stopped" in stopped.changes[-1].detail


def test_a_warm_up_takes_as_long_as_its_longest_answer(profile: Profile, facts: dict[str, Any]) -> None:
    """One of 32 tokens for a single request, a whole one beside it for several: for each visit and cell, not pass."""
    this = measurement(profile, facts, tokens=256)
    seconds, _ = on_host.measuring_s(this)
    cold, _ = on_host.measuring_s(replace(this, left=[replace(one, warm_up=False) for one in this.left]))
    assert seconds - cold == pytest.approx(4 * (32 + 256) / on_host.TOK_S)
    sent = passes.specs(this.left[0].passes, this.design, this.workloads, {})
    longest = [max(map(length, spec["warmup"])) for spec in sent if spec["warmup"]]
    assert sum(longest) == 32 + 256, "what is counted is what is sent"


def test_what_was_measured_tells_how_long_it_takes(profile: Profile, facts: dict[str, Any]) -> None:
    this = measurement(profile, facts)
    one, four = (cell.key for cell in this.design.cells)
    seconds, words = on_host.measuring_s(replace(this, speeds={one: 2.0, four: 3.0}))
    assert seconds == pytest.approx(4 * 2 * (8 / 2 + 2 / 3) * 12 + 4 * (12 / 2 + 12 / 3))
    assert words.endswith("as fast as measured before")
    half, words = on_host.measuring_s(replace(this, speeds={one: 2.0}))
    assert half == pytest.approx(
        4 * 2 * (8 * 12 / 2 + 2 * 12 / on_host.TOK_S) + 4 * (12 / 2 + 12 / on_host.TOK_S)
    )
    assert words.endswith("at an assumed 100 tok/s")


def length(item: dict[str, Any]) -> int:
    return int(item["body"]["sampling_params"]["max_new_tokens"])


def test_a_visit_that_is_not_warmed_up(profile: Profile, facts: dict[str, Any]) -> None:
    """The traced one: each token of a warm-up would be a round of the trace, fetched for nothing."""
    this = measurement(profile, facts)
    traced = plan_of_tuning.traced_visit(this.design, "code")
    chain = replace(this.built["chain"], arm=replace(this.built["chain"].arm, name=traced.arm))
    both = replace(
        this, built={**this.built, traced.arm: chain}, left=passes.without([*this.left[:1], traced], [])
    )
    warm, cold = (
        [bool(spec["warmup"]) for spec in step["passes"]]
        for step in on_host.plan(both, 1.0).steps
        if step["step"] == "bench"
    )
    assert warm == [True, True, False, False] and cold == [False]


def test_a_resumed_run_starts_only_what_it_has_to(profile: Profile, facts: dict[str, Any]) -> None:
    every = [one.ident for one in passes.alternating(measurement(profile, facts).design)]
    missing = {"chain/code-c4/v1/r1", "chain/code-c1/v0/r0"}
    plan = on_host.plan(measurement(profile, facts, tuple(set(every) - missing)), 1.0)
    assert kinds(plan) == ["safeguard", "stop", *VISIT * 2], "plain has no release to write"
    asked_for = [spec["pass"] for step in plan.steps if step["step"] == "bench" for spec in step["passes"]]
    assert asked_for == ["chain/code-c1/v0/r0", "chain/code-c4/v1/r1"]


def test_a_prompt_travels_once_and_arrives_in_every_pass(profile: Profile, facts: dict[str, Any]) -> None:
    this = measurement(profile, facts)
    plan = on_host.plan(this, 1.0)
    bench = next(step for step in plan.steps if step["step"] == "bench")
    text = this.workloads["code"].prompts[0].given["text"]
    assert json.dumps(bench).count(json.dumps(text)[1:-1]) == 1
    sent = [with_prompts(spec, bench["prompts"]) for spec in bench["passes"]]
    assert sent == passes.specs(this.left[0].passes, this.design, this.workloads, {})


def test_a_chat_stands_in_the_plan_once_too() -> None:
    chat = {"messages": [{"role": "user", "content": "say it"}]}
    asked_for = {"index": 0, "prompt": "0" * 16, "body": {**chat, "sampling_params": {"max_new_tokens": 8}}}
    specs = [
        {"pass": f"plain/a-c1/v0/r{repeat}", "requests": [asked_for], "warmup": []} for repeat in range(2)
    ]
    prompts, lean = on_host.packed(specs)
    assert prompts == {"0" * 16: chat} and "say it" not in json.dumps(lean)
    assert [with_prompts(spec, prompts) for spec in lean] == specs


def test_losslessness_is_announced_and_judged_by_one_more_start_of_plain(
    profile: Profile, facts: dict[str, Any], tmp_path: Path
) -> None:
    this = measurement(profile, facts, lossless=True)
    assert any(change.what == "start plain once more" for change in on_host.plan(this, 1.0).changes)
    alone = replace(this, design=replace(this.design, arms=["chain"]))
    assert all(change.what != "start plain once more" for change in on_host.changes(alone)), "nobody to ask"
    folder = Folder.create(this.about, tmp_path)
    prompt = this.workloads["code"].prompts[0]
    with store.Writer(folder.samples_path) as write:
        for arm, ids in (("plain", [1, 2, 3]), ("chain", [1, 2, 9])):
            ident = {"pass": f"{arm}/code-c1/v0/r0", "attempt": 1}
            write({"kind": "begin", **ident, "unix": 1.0, "server": {}, "warm": "flushed"})
            sample = {"sent_s": 0.0, "chunks": [[0.1, 1], [0.2, 3]], "e2e_s": 0.2, "completion_tokens": 3}
            more = {"error": None, "status": 200, "verify_ct": None, "output_ids": ids, "finish": "length"}
            write({"kind": "sample", **ident, "index": 0, "prompt": prompt.sha, **sample, **more})
            write({"kind": "end", **ident, "seconds": 0.2, "gpu": None, "metrics": None})
    questions = host_judge.questions(folder)
    assert host_judge.unknown(folder) == questions
    sampled = {**this.about, "run": "sampled", "plan": {**this.about["plan"], "temperature": 0.5}}
    other = Folder.create(sampled, tmp_path)
    other.samples_path.write_bytes(folder.samples_path.read_bytes())
    assert host_judge.questions(other) == []
    assert questions == [(prompt.sha, (1, 2))]
    document = host_judge.document(this, folder, questions)
    assert document["temporary"]
    assert [step["step"] for step in document["steps"]] == [
        *("safeguard", "release", "stop", "files", "start", "bench-judge", "stop")
    ]
    step = document["steps"][5]
    asked = host_judge.key(*questions[0])
    assert step["questions"] == {asked: {"prompt": prompt.sha, "said": [1, 2]}}
    assert step["run"] == folder.path.name
    assert step["prompts"] == {prompt.sha: prompt.given} and "input_ids" not in step["body"]
    host_judge.keep(folder, {"another": None})
    host_judge.keep(folder, {asked: [[[-0.1, 3, None], [-0.2, 9, None]]]})
    assert host_judge.unknown(folder) == []
    assert host_judge.known(folder)(prompt.sha, [1, 2]) == [(3, -0.1), (9, -0.2)]


def test_a_host_without_a_salt_gets_one_for_all_releases_of_a_run(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tune` builds the traced server's release after the others."""
    monkeypatch.setenv("MINI_KEY", "sentinel-7f3a")
    monkeypatch.setattr(session, "open_agent", lambda host: None)
    deployment = Deployment(load(str(mini.PROFILE), ["service.api_key=${env:MINI_KEY}"]), "h")
    deployment._facts = {**facts, "salt": None}
    assert deployment.build_release().digest == deployment.build_release().digest
    assert deployment.salt == deployment.salt != ""


def test_too_large_for_a_frame(
    profile: Profile, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ddtool.bench import host_run

    monkeypatch.setattr(host_run, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="plan is"):
        host_run.document(on_host.plan(measurement(profile, facts), 1.0))


class TestFingerprint:
    def of(self, profile: Profile, facts: dict[str, Any], **changed: Any) -> dict[str, Any]:
        this = measurement(profile, facts, **changed)
        releases = {name: one.release for name, one in this.built.items()}
        return fingerprint.of_host(facts, releases, this.design, this.workloads)

    def test_it_tells_what_matters(self, profile: Profile, facts: dict[str, Any]) -> None:
        one = self.of(profile, facts)
        assert fingerprint.differs(one, self.of(profile, facts)) == []
        assert {"ddtool", "agent", "wheels", "driver", "card", "prompts", "sampling", "flags"} <= one.keys()
        assert fingerprint.differs(one, self.of(profile, facts, tokens=13)) == ["sampling.tokens: 12 → 13"]
        newer = {**facts, "gpus": [{**card, "driver": "999"} for card in facts["gpus"]]}
        assert fingerprint.differs(one, self.of(profile, newer)) == ["driver: assumed → 999"]
        other = load(str(mini.PROFILE), ["server_args.page-size=1"])
        changed = fingerprint.differs(one, self.of(other, facts))
        assert "flags.plain.page-size: None → 1" in changed and any(
            "releases.chain" in line for line in changed
        )

    def test_it_holds_no_secret(self, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINI_KEY", "sentinel-7f3a")
        keyed = load(str(mini.PROFILE), ["service.api_key=${env:MINI_KEY}"])
        this = measurement(keyed.model_copy(update={"service": load(str(mini.PROFILE)).service}), facts)
        from ddtool.deploy.release import build_release

        release = build_release(keyed, {"MINI_KEY": "sentinel-7f3a"}, SALT, "w")
        made = fingerprint.of_host(facts, {"chain": release}, this.design, this.workloads)
        assert "sentinel" not in json.dumps(made)

    def test_cards(self) -> None:
        cards: list[Any] = [{"name": "A"}, {"name": "B"}, {"name": "A"}]
        assert fingerprint.card(cards) == "2 x A, 1 x B"
        assert fingerprint.card([]) is None


class TestTaints:
    def test_a_clean_host_has_none(self, profile: Profile, facts: dict[str, Any]) -> None:
        assert taint.of_facts({**facts, "venv": {**facts["venv"], "standins": []}}) == []
        assert taint.of_profile(profile) == []

    def test_of_the_host(self, facts: dict[str, Any]) -> None:
        facts["diagnostics"] = {
            "patches": [
                {"name": "graph-copy", "sha": "1", "kind": "diagnostic"},
                {"name": "fix", "kind": "fix"},
            ],
            "files": [{"file": "a.py", "state": "ours"}, {"file": "b.py", "state": "foreign"}],
        }
        facts["venv"] = {
            **facts["venv"],
            "sglang": {"modified": ["a.py", "b.py", "c.py"], "missing": ["d.py", "e.py"]},
            "standins": [{"name": "sgl_kernel"}],
        }
        live, drift, standins = taint.of_facts(facts)
        assert live.startswith("live diagnostics: graph-copy (")
        assert drift.endswith("b.py, c.py, d.py and 1 more")
        assert "speed means nothing" in standins
        assert taint.of_profile(load("demo")) == ["eager: the profile runs without CUDA graphs"]

    def lines(self, **changed: Any) -> list[dict[str, Any]]:
        """Two visits of an arm; `changed`: of the second one."""
        found: list[dict[str, Any]] = []
        for visit in (0, 1):
            ident = {"pass": f"chain/code-c1/v{visit}/r0"}
            extra = changed if visit else {}
            server = {"digest": extra.get("digest", "d"), "release": f"{visit}"}
            warm = extra.get("warm", "flushed")
            found += [
                {
                    "kind": "begin",
                    **ident,
                    "server": server,
                    "warm": warm,
                    "flush_error": extra.get("flush_error"),
                },
                {"kind": "sample", **ident, "prompt_tokens": 100, "cached_tokens": extra.get("cached", 1)},
                {
                    "kind": "end",
                    **ident,
                    "gpu": {"others": extra.get("others", [])},
                    "eager": extra.get("eager"),
                    "greedy": extra.get("greedy"),
                },
            ]
        return found

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"digest": "e"}, "different servers: chain"),
            ({"warm": "warm", "flush_error": "400: busy"}, "not emptied before passes of chain (400: busy)"),
            ({"cached": 50}, "26% in chain in code-c1"),
            ({"others": ["4711 (train.py)"]}, "4711 (train.py)"),
            ({"eager": True}, "eager: chain"),
            ({"greedy": True}, "greedy: chain drew no tokens"),
        ],
    )
    def test_of_what_ran(self, changed: dict[str, Any], said: str) -> None:
        assert taint.of_samples(self.lines()) == []
        (found,) = taint.of_samples(self.lines(**changed))
        assert said in found
